"""The project's own folder, `.remit`: made when first needed, with what keeps it out of the repository. Used by `app` and `board`."""

import errno
import os
from pathlib import Path

from remit.core.errors import Unavailable

_IGNORED = """\
# made by remit: what runs here is not for the repository; agents, commands, the policy and assistant.md are
*
!.gitignore
!agents/
!agents/**
!commands/
!commands/**
!context/
!context/**
!policy.*
!assistant.md
"""


def make_folder(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text(_IGNORED)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        fault, advice = f"cannot be used: {error.strerror}", "Make the project folder writable, or work in a copy of it."
        if folder.is_file():
            fault, advice = "is a file, and remit keeps a folder of that name", f"Move it: mv {folder} {folder}.old"
        raise Unavailable(f"{folder} {fault}.", code="STORE_UNAVAILABLE", advice=advice) from None
