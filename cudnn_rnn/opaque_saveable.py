"""The former name of `cudnn_rnn.saveables`."""

from cudnn_rnn.saveables import *  # noqa: F403
