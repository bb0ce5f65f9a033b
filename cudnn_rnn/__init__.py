"""cuDNN's recurrent networks for graph-mode TensorFlow: `tf.contrib.cudnn_rnn` brought back."""

import importlib

from cudnn_rnn import command_line
from cudnn_rnn._version import __version__

if not command_line.is_being_located():
    from cudnn_rnn.library import load_library

    # Before anything imports TensorFlow: where something is wrong with it or with the library, this
    # says what and what to do.
    load_library()

    from cudnn_rnn import (
        contrib,
        cudnn_rnn_ops,
        layers,
        meta_graph,
        restore_hooks,
        second_order,  # noqa: F401  (registers the gradients of the gradient ops)
    )
    from cudnn_rnn.config import (
        CUDNN_GRU,
        CUDNN_GRU_PARAMS_PER_LAYER,
        CUDNN_INPUT_AUTO_MODE,
        CUDNN_INPUT_LINEAR_MODE,
        CUDNN_INPUT_SKIP_MODE,
        CUDNN_LSTM,
        CUDNN_LSTM_PARAMS_PER_LAYER,
        CUDNN_RNN_BIDIRECTION,
        CUDNN_RNN_RELU,
        CUDNN_RNN_RELU_PARAMS_PER_LAYER,
        CUDNN_RNN_TANH,
        CUDNN_RNN_TANH_PARAMS_PER_LAYER,
        CUDNN_RNN_UNIDIRECTION,
    )
    from cudnn_rnn.gpu import kernels_in_charge
    from cudnn_rnn.meta_graph import import_meta_graph
    from cudnn_rnn.models import CudnnGRU, CudnnLSTM, CudnnRNNRelu, CudnnRNNTanh
    from cudnn_rnn.opaque_saveable import (
        CudnnGRUSaveable,
        CudnnLSTMSaveable,
        CudnnOpaqueParamsSaveable,
        CudnnRNNReluSaveable,
        CudnnRNNTanhSaveable,
    )
    from cudnn_rnn.optimizer_slots import saved_as_cells
    from cudnn_rnn.params_format import (
        CudnnParamsFormatConverter,
        CudnnParamsFormatConverterGRU,
        CudnnParamsFormatConverterLSTM,
        CudnnParamsFormatConverterRelu,
        CudnnParamsFormatConverterTanh,
    )
    from cudnn_rnn.saveable import RNNParamsSaveable

    meta_graph.install()
    restore_hooks.install()

# The cells are loaded when they are first used: in some TensorFlows their base class is Keras's,
# and importing this package must not import Keras.
_MODULES_OF_CELLS = {
    "BasicRNNCell": "rnn_cells",
    "CudnnCompatibleGRUCell": "compatible_cells",
    "CudnnCompatibleLSTMCell": "compatible_cells",
    "LSTMStateTuple": "compatible_cells",
    "MultiRNNCell": "compatible_cells",
    "stack_bidirectional_dynamic_rnn": "rnn_cells",
}


def __getattr__(name):
    if name in _MODULES_OF_CELLS:
        module = importlib.import_module("cudnn_rnn." + _MODULES_OF_CELLS[name])
        globals()[name] = getattr(module, name)
        return globals()[name]
    if name in _MODULES_OF_CELLS.values():
        return importlib.import_module("cudnn_rnn." + name)
    raise AttributeError("module %r has no attribute %r" % (__name__, name))


def __dir__():
    return sorted(set(globals()) | set(_MODULES_OF_CELLS))


__all__ = [
    "BasicRNNCell",
    "CUDNN_GRU",
    "CUDNN_GRU_PARAMS_PER_LAYER",
    "CUDNN_INPUT_AUTO_MODE",
    "CUDNN_INPUT_LINEAR_MODE",
    "CUDNN_INPUT_SKIP_MODE",
    "CUDNN_LSTM",
    "CUDNN_LSTM_PARAMS_PER_LAYER",
    "CUDNN_RNN_BIDIRECTION",
    "CUDNN_RNN_RELU",
    "CUDNN_RNN_RELU_PARAMS_PER_LAYER",
    "CUDNN_RNN_TANH",
    "CUDNN_RNN_TANH_PARAMS_PER_LAYER",
    "CUDNN_RNN_UNIDIRECTION",
    "CudnnCompatibleGRUCell",
    "CudnnCompatibleLSTMCell",
    "CudnnGRU",
    "CudnnGRUSaveable",
    "CudnnLSTM",
    "CudnnLSTMSaveable",
    "CudnnOpaqueParamsSaveable",
    "CudnnParamsFormatConverter",
    "CudnnParamsFormatConverterGRU",
    "CudnnParamsFormatConverterLSTM",
    "CudnnParamsFormatConverterRelu",
    "CudnnParamsFormatConverterTanh",
    "CudnnRNNRelu",
    "CudnnRNNReluSaveable",
    "CudnnRNNTanh",
    "CudnnRNNTanhSaveable",
    "LSTMStateTuple",
    "MultiRNNCell",
    "RNNParamsSaveable",
    "__version__",
    "contrib",
    "cudnn_rnn_ops",
    "import_meta_graph",
    "kernels_in_charge",
    "layers",
    "saved_as_cells",
    "stack_bidirectional_dynamic_rnn",
]
