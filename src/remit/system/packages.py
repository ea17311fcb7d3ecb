"""Installed packages: optional ones, imported when they are needed, and the entry points that packages offer."""

import importlib
import os
import sys
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

from remit.core.errors import Unavailable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def need(module: str, extra: str) -> ModuleType:
    """The module; without it the delegation ends `blocked` / TOOL_UNAVAILABLE and says what to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        raise _missing(f"This needs the package {missing}, which is not installed here.", extra) from None
    except ImportError as error:  # it is there, but cannot be used: what it rests on is missing, or too old
        raise _missing(
            f"The package {module.partition('.')[0]} is installed, but cannot be used: {' '.join(str(error).split())}", extra
        ) from None


def _missing(what: str, extra: str) -> Unavailable:
    return Unavailable(what, code="TOOL_UNAVAILABLE", advice=f"pip install 'remit[{extra}]'")


# ---- entry points


def offered(group: str) -> tuple["EntryPoint", ...]:
    return _read(group, tuple((folder, _changed(folder)) for folder in sys.path))


@lru_cache(maxsize=16)
def _read(group: str, places: tuple[tuple[str, int], ...]) -> tuple["EntryPoint", ...]:
    """A package that comes or goes changes the folder it is in."""
    import importlib.metadata

    return tuple(importlib.metadata.entry_points(group=group))


def _changed(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0
