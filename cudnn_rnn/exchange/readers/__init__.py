"""Programs and functions that run in a child process; see `exchange/guarded.py`.

Each module reads one format, with NumPy and the library of this format: h5py or TensorFlow. May
import TensorFlow. The child process runs the modules as files. They import nothing of this package,
whose import takes seconds.
"""
