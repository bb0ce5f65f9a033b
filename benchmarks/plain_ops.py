"""Measures models in `cudnn_rnn.plain_ops()`, also under XLA, against the fused op, on a CPU.

    python benchmarks/plain_ops.py

Prints, for each model, the time of the fused op and the times of the others divided by it. Each
number is the median of runs that take turns.
"""

import contextlib
import statistics
import time

import tensorflow as tf

import cudnn_rnn
from cudnn_rnn import cudnn_rnn_ops

# name -> (mode, layers, units, input size, batch, time steps)
MODELS = {
    "LSTM, 2 layers of 200, batch 20, 35 steps": ("lstm", 2, 200, 200, 20, 35),
    "LSTM, 1 layer of 650, batch 20, 35 steps": ("lstm", 1, 650, 650, 20, 35),
    "GRU, 1 layer of 128, batch 1, 100 steps": ("gru", 1, 128, 64, 1, 100),
}
RUNS = 15


def function_of(model, is_plain, jit_compile, is_training):
    """Returns a function without arguments that runs the model once, and waits for the result."""
    mode, layers, units, input_size, batch, steps = model
    inputs = tf.random.stateless_normal([steps, batch, input_size], [1, 2])
    state = tf.zeros([layers, batch, units])
    class_ = {"lstm": cudnn_rnn.CudnnLSTM, "gru": cudnn_rnn.CudnnGRU}[mode]
    size = class_(layers, units, input_size).config.params_size()
    params = tf.Variable(tf.random.stateless_uniform([size], [1, 2], -0.1, 0.1))
    run = {"lstm": cudnn_rnn_ops.cudnn_lstm, "gru": cudnn_rnn_ops.cudnn_gru}[mode]
    states = [state] * (2 if mode == "lstm" else 1)

    @tf.function(jit_compile=jit_compile)
    def compute():
        with cudnn_rnn.plain_ops() if is_plain else contextlib.nullcontext():
            if not is_training:
                return run(inputs, *states, params, is_training=False)[0]
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(run(inputs, *states, params, is_training=True)[0])
            return tape.gradient(loss, params)

    return lambda: tf.convert_to_tensor(compute()).numpy()


def main():
    for name, model in MODELS.items():
        for is_training in (False, True):
            functions = [
                function_of(model, is_plain, jit_compile, is_training)
                for is_plain, jit_compile in ((False, None), (True, None), (True, True))
            ]
            times = [[] for _ in functions]
            for turn in range(RUNS + 2):
                for function, measured in zip(functions, times):
                    start = time.perf_counter()
                    function()
                    if turn >= 2:  # the first runs trace, and warm up
                        measured.append(time.perf_counter() - start)
            fused, plain, compiled = map(statistics.median, times)
            print(
                "%s, %s: fused %.2f ms, plain %.1f, XLA %.1f"
                % (
                    name,
                    "training" if is_training else "inference",
                    1000 * fused,
                    plain / fused,
                    compiled / fused,
                )
            )


if __name__ == "__main__":
    main()
