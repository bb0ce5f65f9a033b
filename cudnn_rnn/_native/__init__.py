"""The compiled library: finding it, loading it, and which kernels run on a GPU."""
