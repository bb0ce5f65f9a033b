"""Keras layers on the fused ops: `LSTM`, `GRU` and `SimpleRNN` in place of Keras's own."""

from cudnn_rnn.keras._keras3 import GRU, LSTM, SimpleRNN

__all__ = ["GRU", "LSTM", "SimpleRNN"]
