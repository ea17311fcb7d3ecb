"""Installed packages: optional ones, imported on demand, and entry points of packages."""

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
    """The module; without it the delegation ends `blocked` / TOOL_UNAVAILABLE with the package to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        raise _missing(f"This needs the package {missing}, which is not installed here.", extra) from None
    except ImportError as error:  # it exists but cannot be used: a dependency is missing or too old
        raise _missing(
            f"The package {module.partition('.')[0]} is installed, but cannot be used: {' '.join(str(error).split())}", extra
        ) from None


def _missing(what: str, extra: str) -> Unavailable:
    return Unavailable(what, code="TOOL_UNAVAILABLE", advice=f"pip install 'remit[{extra}]'")


# ---- entry points


def offered(group: str) -> tuple["EntryPoint", ...]:
    return _read(group, tuple(sys.path))


@lru_cache(maxsize=16)
def _read(group: str, folders: tuple[str, ...]) -> tuple["EntryPoint", ...]:
    """Metadata is parsed only where a file names the group."""
    if not any(_may_name(group, folder) for folder in folders):
        return ()
    from importlib.metadata import entry_points

    return tuple(entry_points(group=group))


def _may_name(group: str, folder: str) -> bool:
    """Whether a package in this folder, or an archive, may offer entry points of the group."""
    try:
        packages = [one.path for one in os.scandir(folder or ".") if one.name.endswith((".dist-info", ".egg-info", "EGG-INFO"))]
    except NotADirectoryError:
        return True
    except OSError:
        return False
    return any(_names(group, f"{package}/entry_points.txt") for package in packages)


def _names(group: str, file: str) -> bool:
    try:
        with open(file, "rb") as text:
            return group.encode() in text.read()
    except OSError:  # most packages offer none
        return False
