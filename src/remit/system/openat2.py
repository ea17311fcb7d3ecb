"""The system call `openat2`: a path resolved by the kernel in one go, never leading out of the folder it starts from.

Linux 5.6 and later; Python has no name for it, hence `ctypes`. Where it is missing, `supported()` says so and `system.walking` does it
step by step. Knows neither files nor rules. Used by `system.beneath` and `system.removing`.
"""

import ctypes
import errno
import os
import sys
from functools import cache

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_BENEATH = 0x08
_NUMBER = 437
"""The same on every architecture but alpha, which we do not know."""
_TRIES = 64
"""A folder renamed anywhere while `..` of a link is resolved makes the kernel ask to try again."""


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@cache
def _syscall() -> "ctypes._NamedFuncPointer":
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_How), ctypes.c_size_t]
    call.restype = ctypes.c_long
    return call


def open_beneath(folder: int, path: str, flags: int, *, crosses_mounts: bool = True) -> int:
    """An existing file or folder at or below the open `folder`; links are followed as long as they stay there.

    Raises `OSError`: EXDEV for what leads out (every absolute link among it) or, unless it `crosses_mounts`, to where something else is
    mounted; EAGAIN when the tree changes too fast.
    """
    resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (0 if crosses_mounts else RESOLVE_NO_XDEV)
    how = _How(flags | os.O_CLOEXEC, 0, resolve)
    name = os.fsencode(path)
    code = 0
    for _ in range(_TRIES):
        descriptor = _syscall()(_NUMBER, folder, name, ctypes.byref(how), ctypes.sizeof(how))
        if descriptor >= 0:
            return int(descriptor)
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code), path)


@cache
def supported() -> bool:
    """Asked once: an old kernel has no such call, and a sandbox may forbid it. /proc is needed to learn where a path led."""
    if sys.platform != "linux" or not hasattr(os, "O_PATH"):
        return False
    try:
        folder = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        os.close(open_beneath(folder, ".", os.O_PATH | os.O_DIRECTORY))
        return os.readlink(f"/proc/self/fd/{folder}") == "/"
    except OSError:
        return False
    finally:
        os.close(folder)
