"""Tells whether Python imports this package only to run `python -m cudnn_rnn`.

Python imports a package before the package's `__main__`. In that case the package imports nothing
else, so that the commands start fast and work even if TensorFlow or the op library is broken.
"""

import re
import sys

_PACKAGE_AS_AN_ARGUMENT = re.compile(r"(-\w*m)?cudnn_rnn(\.__main__)?$")


def is_command_starting():
    """Returns whether this process is `python -m cudnn_rnn` and `__main__` has not started yet."""
    # argv[0] is "-m" while Python locates the module; then it becomes the module's path.
    if getattr(sys, "argv", [])[:1] != ["-m"]:
        return False
    arguments = _arguments_of_process()
    # `sys.argv` is "-m" and the arguments after the module's name; Python's options are missing.
    place = len(arguments) - len(sys.argv)
    return place > 0 and _PACKAGE_AS_AN_ARGUMENT.match(arguments[place]) is not None


def _arguments_of_process():
    """Returns the whole command line of this process, a list of str."""
    if hasattr(sys, "orig_argv"):
        return sys.orig_argv
    # Python before 3.10 has no sys.orig_argv.
    import ctypes

    count, arguments = ctypes.c_int(), ctypes.POINTER(ctypes.c_wchar_p)()
    ctypes.pythonapi.Py_GetArgcArgv(ctypes.byref(count), ctypes.byref(arguments))
    return arguments[: count.value]
