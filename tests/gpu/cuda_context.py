"""Ends a process whose CUDA context an error, such as an illegal access, has broken."""

import ctypes
import os

import pytest


def is_broken():
    """Returns whether every further call on the first GPU would fail."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    flags, is_active, context = ctypes.c_uint(), ctypes.c_int(), ctypes.c_void_p()
    cuda.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(is_active))
    if not is_active.value:
        return False
    # PyTorch, TensorFlow and this package use the primary context.
    status = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    status = status or cuda.cuCtxPushCurrent_v2(context)
    if status == 0:
        status = cuda.cuCtxSynchronize()
        cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
        cuda.cuDevicePrimaryCtxRelease_v2(0)
    return status != 0


class Guard:
    """A plugin of pytest: ends the process after a failed test if every later one would fail.

    pytest-xdist replaces a worker.
    """

    def __init__(self, is_worker):
        self._is_worker = is_worker

    @pytest.hookimpl(trylast=True)  # the report has been sent
    def pytest_runtest_logreport(self, report):
        if report.failed and report.when in ("setup", "call") and is_broken():
            if self._is_worker:
                os._exit(1)
            pytest.exit("%s broke the CUDA context" % report.nodeid, returncode=1)
