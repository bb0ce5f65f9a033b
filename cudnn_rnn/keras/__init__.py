"""Keras layers on the fused ops: `LSTM`, `GRU` and `SimpleRNN` in place of Keras's own.

`CuDNNLSTM` and `CuDNNGRU` are for programs that used those of Keras 2 or TensorFlow 1.

They are for the Keras that `tf.keras` is: Keras 3, or Keras 2 up to TensorFlow 2.15 and with
TF_USE_LEGACY_KERAS=1 and tf_keras. docs/keras.md explains them.

May import `_compat`, `_patches`, `exchange`, `graph`, `model` and TensorFlow.
"""

from cudnn_rnn.keras import _load_weights
from cudnn_rnn.keras._cudnn_layers import CuDNNGRU, CuDNNLSTM
from cudnn_rnn.keras._fused_layer import IS_KERAS_3
from cudnn_rnn.keras._loading import load_model, load_weights, model_from_json
from cudnn_rnn.keras._stack import RNNStack

if IS_KERAS_3:
    from cudnn_rnn.keras._keras3 import GRU, LSTM, SimpleRNN
else:
    from cudnn_rnn.keras._keras2 import GRU, LSTM, SimpleRNN

__all__ = [
    "GRU",
    "LSTM",
    "CuDNNGRU",
    "CuDNNLSTM",
    "RNNStack",
    "SimpleRNN",
    "load_model",
    "load_weights",
    "model_from_json",
]

_load_weights.install()
