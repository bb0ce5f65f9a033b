"""The command line: `python -m cudnn_rnn doctor`, `run`, `inspect`, `convert` and `export`."""
