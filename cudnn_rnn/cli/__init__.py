"""The command line: `python -m cudnn_rnn doctor` and `run`."""
