"""Keras layers on the fused ops: `LSTM`, `GRU` and `SimpleRNN` in place of Keras's own.

They are for the Keras that `tf.keras` is: Keras 3, or Keras 2 up to TensorFlow 2.15 and with
TF_USE_LEGACY_KERAS=1 and tf_keras. docs/keras.md explains them.

May import `_compat`, `exchange`, `graph`, `model` and TensorFlow.
"""

from cudnn_rnn.keras._layer import IS_KERAS_3
from cudnn_rnn.keras._loading import load_model
from cudnn_rnn.keras._stack import RNNStack

if IS_KERAS_3:
    from cudnn_rnn.keras._keras3 import GRU, LSTM, SimpleRNN
else:
    from cudnn_rnn.keras._keras2 import GRU, LSTM, SimpleRNN

__all__ = ["GRU", "LSTM", "RNNStack", "SimpleRNN", "load_model"]
