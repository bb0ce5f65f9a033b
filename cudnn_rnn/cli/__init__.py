"""The command line: `python -m cudnn_rnn doctor`, `run`, `inspect`, `convert` and `export`.

May import `_disk`, `_release_numbers` and `_version`; inside functions also `_native` and
TensorFlow. The commands start even if TensorFlow or the op library is broken. A command that needs
the rest of the package loads it with `importlib` when it runs.
"""
