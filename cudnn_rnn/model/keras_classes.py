"""The recurrent layers of Keras by the names that its releases gave them, and what they compute."""

from __future__ import annotations

from typing import Any, Dict

# The names in files, and the layers of today that compute the same.
RNN_CLASSES = {
    "LSTM": "LSTM",
    "GRU": "GRU",
    "SimpleRNN": "SimpleRNN",
    "UnifiedLSTM": "LSTM",
    "UnifiedGRU": "GRU",
    "CuDNNLSTM": "LSTM",
    "CuDNNGRU": "GRU",
}
# Those whose arrays have the dialect `KERAS_CUDNN`.
CUDNN_CLASSES = ("CuDNNLSTM", "CuDNNGRU")
# What cuDNN computes, for which the layers of cuDNN have no arguments.
_OF_CUDNN = {"activation": "tanh", "recurrent_activation": "sigmoid", "use_bias": True}
# What the layers of a class computed before they had an argument for that.
ADDED_ARGUMENTS: Dict[str, Dict[str, Any]] = {
    "GRU": {"reset_after": False},
    "CuDNNLSTM": _OF_CUDNN,
    "CuDNNGRU": dict(_OF_CUDNN, reset_after=True),
}
