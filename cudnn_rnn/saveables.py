"""Saveables and converters under the names that TensorFlow 1.0 to 1.15 gave them."""

from cudnn_rnn.checkpoints.canonical_saveable import RNNParamsSaveable
from cudnn_rnn.checkpoints.cell_saveables import (
    CudnnGRUSaveable,
    CudnnLSTMSaveable,
    CudnnOpaqueParamsSaveable,
    CudnnRNNReluSaveable,
    CudnnRNNTanhSaveable,
)
from cudnn_rnn.checkpoints.converters import (
    CudnnParamsFormatConverter,
    CudnnParamsFormatConverterGRU,
    CudnnParamsFormatConverterLSTM,
    CudnnParamsFormatConverterRelu,
    CudnnParamsFormatConverterTanh,
)
from cudnn_rnn.checkpoints.optimizer_slots import saved_as_cells

__all__ = [
    "CudnnGRUSaveable",
    "CudnnLSTMSaveable",
    "CudnnOpaqueParamsSaveable",
    "CudnnParamsFormatConverter",
    "CudnnParamsFormatConverterGRU",
    "CudnnParamsFormatConverterLSTM",
    "CudnnParamsFormatConverterRelu",
    "CudnnParamsFormatConverterTanh",
    "CudnnRNNReluSaveable",
    "CudnnRNNTanhSaveable",
    "RNNParamsSaveable",
    "saved_as_cells",
]
