"""Two names exchanged in one step, and a name given only where there is none: what `rename` alone cannot say.

Linux has both in `renameat2`, for which Python has no name, hence `ctypes`. Where the kernel or the file system knows neither, `exchange`
answers False and `name_new` does it by a link. Knows nothing of what the files mean. Used by `board.write_set`.
"""

import ctypes
import errno
import os
import sys
from functools import cache
from pathlib import Path

_AT_FDCWD = -100
_NOREPLACE = 1
_EXCHANGE = 2
_UNKNOWN = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EPERM})
"""What a kernel, a file system or a sandbox without the call answers."""


def exchange(one: Path, other: Path) -> bool:
    """Each has the other's name afterwards, and at no moment is one without. False: not to be had here; nothing was done.

    Raises `OSError`: `FileNotFoundError` when either is missing, EXDEV when they are on two disks.
    """
    return _renamed(one, other, _EXCHANGE)


def name_new(source: Path, target: Path) -> None:
    """Rename, but never over an existing file: raises `FileExistsError`. On a disk without links, a file that appears meanwhile is lost."""
    if _renamed(source, target, _NOREPLACE):
        return
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _UNKNOWN:
            raise
        os.rename(source, target)
    else:
        os.unlink(source)


def _renamed(source: Path, target: Path, flags: int) -> bool:
    call = _renameat2()
    if call is None:
        return False
    if call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), flags) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNKNOWN:
        return False
    raise OSError(code, os.strerror(code), str(source), None, str(target))


@cache
def _renameat2() -> "ctypes._NamedFuncPointer | None":
    if sys.platform != "linux":
        return None
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # an older C library
        return None
    call.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    call.restype = ctypes.c_int
    return call
