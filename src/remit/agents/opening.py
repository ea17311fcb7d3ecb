"""A small file of the project, read whole: never out of the project, never waited for, never more than it may hold.

Whoever cloned the project did not look at what lies in its folders: a pipe would be waited for without end. Used by `agents.pages` and
`agents.schemas`.
"""

import os
from pathlib import Path
from stat import S_ISREG

from remit.core.errors import Misused

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class Gone(Misused):
    """There is no such file; where it was listed, not any more."""


def bytes_of(path: Path, root: Path, most: int) -> bytes:
    """What it holds. Raises `Misused`, without the path."""
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(root.resolve()):
            raise Misused("it is a link that leads out of the project.")
        descriptor = os.open(real, _FLAGS)
        with os.fdopen(descriptor, "rb") as opened:
            if not S_ISREG(os.fstat(descriptor).st_mode):
                raise Misused("it is no file.")
            data = opened.read(most + 1)
    except FileNotFoundError as error:
        raise Gone(f"it cannot be read: {error.strerror}.") from None
    except IsADirectoryError:
        raise Misused("it is no file.") from None
    except RuntimeError as error:  # links in a circle, before Python 3.13
        raise Misused(f"it cannot be read: {error}.") from None
    except OSError as error:
        # ENXIO is a socket's.
        raise Misused(f"it cannot be read: {error.strerror or error}." if not _is_special(path) else "it is no file.") from None
    if len(data) > most:
        raise Misused(f"it is larger than {most // 1024} KiB.")
    return data


def _is_special(path: Path) -> bool:
    try:
        return not S_ISREG(path.stat().st_mode)
    except OSError:
        return False
