"""The command line: `python -m cudnn_rnn doctor`, `run` and `export`."""
