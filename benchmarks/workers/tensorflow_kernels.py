"""The op on a GPU: through our classes with our kernels, or CudnnRNNV3 with TensorFlow's own.

A process chooses its kernels when it starts, through $CUDNN_RNN_GPU_KERNELS. Of TensorFlow's own
kernels, those of the other versions of the op refuse every call with cuDNN 9.
"""

import ours
from graph_network import tf
from problem import Refused
from tensorflow.python.ops import gen_cudnn_rnn_ops

from cudnn_rnn._native.gpu_kernels import kernels_in_charge


def start(options):
    """Switches to graph mode and disables TF32; returns the versions."""
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return dict(ours.start(options), kernels=str(kernels_in_charge()))


class Network(ours.Network):
    """One op for all layers; all data is in variables on the device."""

    def __init__(self, configuration, problem, options):
        wanted = options["kernels"]
        if options["device"] == "cpu" and wanted == "tensorflow":
            raise Refused("TensorFlow has no CPU kernels of its own")
        super().__init__(configuration, problem, options)
        self.step()  # loads the kernels
        if options["device"] == "cuda" and kernels_in_charge().provider != wanted:
            raise Refused("it uses other %s" % (kernels_in_charge(),))

    def call(self, x, states, params, lengths):
        if self.options["kernels"] == "cudnn_rnn":
            return super().call(x, states, params, lengths)
        configuration = self.configuration
        h, c = states if len(states) == 2 else (states[0], tf.constant([], self.dtype))
        lengths = tf.constant([configuration.steps] * configuration.batch, tf.int32)
        names = ("rnn_mode", "direction", "is_training")
        modes = {name: getattr(configuration, name) for name in names}
        node = gen_cudnn_rnn_ops.cudnn_rnnv3(x, h, c, params, lengths, **modes)
        return [node.output, node.output_h, node.output_c][: 1 + len(states)]
