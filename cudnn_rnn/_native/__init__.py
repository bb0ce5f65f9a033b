"""The compiled library: finding it, loading it, and which kernels run on a GPU.

May import `_version` and `model`; inside functions also `_compat` and TensorFlow. The library is
loaded before anything else imports TensorFlow, so that errors explain a broken TensorFlow or
library.
"""
