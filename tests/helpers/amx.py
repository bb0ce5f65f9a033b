"""The system's permission to use AMX, for programs that tests run in processes of their own."""

import ctypes

_ARCH_PRCTL = 158  # on x86-64
_GET_PERMISSIONS, _REQUEST_PERMISSION = 0x1022, 0x1023
_TILE_DATA = 18
_SET_SECCOMP, _FILTER, _NO_NEW_PRIVILEGES = 22, 2, 38


def is_permitted():
    """Returns whether this process has the permission."""
    features = ctypes.c_uint64()
    status = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _GET_PERMISSIONS, ctypes.byref(features))
    return status == 0 and bool(features.value >> _TILE_DATA & 1)


class _Stack(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]


_SMALL_STACK = ctypes.create_string_buffer(4096)  # the AMX registers alone have 8 KiB


def use_small_signal_stack():
    """Gives this thread an alternate signal stack for which the system refuses AMX, with ENOSPC."""
    address = ctypes.addressof(_SMALL_STACK)
    stack = _Stack(address, 0, len(_SMALL_STACK))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.sigaltstack(ctypes.byref(stack), None) == 0, ctypes.get_errno()


class _Instruction(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint16),
        ("skip_if", ctypes.c_uint8),
        ("skip_unless", ctypes.c_uint8),
        ("value", ctypes.c_uint32),
    ]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction))]


def forbid():
    """Makes the system refuse the permission to this process from now on, with EPERM."""
    load, skip_unless_equal, end = 0x20, 0x15, 0x06
    allow, refuse_with_eperm = 0x7FFF0000, 0x00050001
    instructions = [
        (load, 0, 0, 0),  # the system call's number
        (skip_unless_equal, 0, 3, _ARCH_PRCTL),
        (load, 0, 0, 16),  # the lower half of its first argument
        (skip_unless_equal, 0, 1, _REQUEST_PERMISSION),
        (end, 0, 0, refuse_with_eperm),
        (end, 0, 0, allow),
    ]
    array = (_Instruction * len(instructions))(*instructions)
    program = _Program(len(instructions), array)
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for arguments in [(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, program)]:
        arguments = [ctypes.byref(a) if a is program else ctypes.c_ulong(a) for a in arguments]
        assert prctl(*arguments) == 0, ctypes.get_errno()
