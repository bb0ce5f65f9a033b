/* A function that Python calls through ctypes to report on the CPU kernels. */
#ifndef CUDNN_RNN_CC_TF_CPU_REPORT_H_
#define CUDNN_RNN_CC_TF_CPU_REPORT_H_

#ifdef __cplusplus
extern "C" {
#endif

/* Returns a line of text for each of float, half and bfloat16, such as "float: avx512, the
 * processor has AVX-512": the instruction set that computes such models in this process, and the
 * reason; or the error that they raise. Requests the permission to use AMX, as the first bfloat16
 * model does. Valid until this thread's next call. */
__attribute__((visibility("default"))) const char* cudnn_rnn_cpu_report(void);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CUDNN_RNN_CC_TF_CPU_REPORT_H_ */
