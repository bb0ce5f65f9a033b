"""Tells whether Python imports this package on its way to `python -m cudnn_rnn`.

Python imports a package before the package's `__main__`. The commands answer at once, and also
where TensorFlow or the op library is broken, so for them the package imports nothing else.
"""

import re
import sys

_PACKAGE_AS_AN_ARGUMENT = re.compile(r"(-\w*m)?cudnn_rnn(\.__main__)?$")


def is_being_located():
    """Returns whether this process is `python -m cudnn_rnn` and `__main__` has not started yet."""
    # Python puts "-m" here while it looks for the module, and then the path of the module.
    if getattr(sys, "argv", [])[:1] != ["-m"]:
        return False
    arguments = _arguments_of_process()
    # `sys.argv` is "-m" and what follows the module's name; the options of Python come before it.
    place = len(arguments) - len(sys.argv)
    return place > 0 and _PACKAGE_AS_AN_ARGUMENT.match(arguments[place]) is not None


def _arguments_of_process():
    """Returns the whole command line of this process, a list of str."""
    if hasattr(sys, "orig_argv"):
        return sys.orig_argv
    # Python before 3.10.
    import ctypes

    count, arguments = ctypes.c_int(), ctypes.POINTER(ctypes.c_wchar_p)()
    ctypes.pythonapi.Py_GetArgcArgv(ctypes.byref(count), ctypes.byref(arguments))
    return arguments[: count.value]
