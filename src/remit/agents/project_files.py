"""Small project files, read whole and never outside the project."""

import os
from pathlib import Path

from remit.core.errors import Misused, Refused
from remit.system.beneath import open_regular
from remit.system.trust import ADVICE, CODE, ProjectTrust


class Gone(Misused):
    """The file does not exist, or no longer exists."""


class NotApproved(Misused, Refused):
    """No person approved its content."""

    default_code = CODE


def bytes_of(path: Path, root: Path, most: int, trust: ProjectTrust | None = None) -> bytes:
    """The content of a regular file, which must be approved if `trust` is given. Raises `Misused`, without the path."""
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(root.resolve()):
            raise Misused("it is a link that leads out of the project.")
        if not real.is_file():
            raise Misused("it is not a file.")
        with os.fdopen(open_regular(real), "rb") as opened:
            data = opened.read(most + 1)
    except FileNotFoundError as error:
        raise Gone(f"it cannot be read: {error.strerror}.") from None
    except (OSError, RuntimeError) as error:  # RuntimeError: circular links, before Python 3.13
        raise Misused(f"it cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if len(data) > most:
        raise Misused(f"it is larger than {most // 1024} KiB.")
    if trust is not None and not trust.allows_content(path, data):
        raise NotApproved("it is not approved.", advice=ADVICE)
    return data
