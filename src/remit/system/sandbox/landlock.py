"""Landlock: what this kernel can refuse, and the rules for sandboxed code. Only numbers and paths: `keeper` makes the calls.

Rules only add rights: a hidden folder in a readable one is excluded by naming everything beside it (`readable`)."""

import ctypes
import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from remit.system.sandbox.profile import VISIBLE_FILES, Profile
from remit.system.sandbox.recipes import SYSTEM_FOLDERS

CREATE_RULESET = 444
"""System call number, the same on every machine."""
_GET_VERSION = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST = (1 << 13) - 1
"""All that the first version knows."""
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11

READ = _EXECUTE | _READ_FILE | _READ_DIR
DEVICE = _READ_FILE | _WRITE_FILE
OF_FILES = _EXECUTE | _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
"""Rights on files; the rest is about folders."""

SCOPES_SINCE = 6
"""From this version on it confines signals and abstract sockets."""


@cache
def version() -> int:
    """The version of Landlock in this kernel; 0: none, or disabled."""
    return max(0, int(ctypes.CDLL(None).syscall(CREATE_RULESET, None, ctypes.c_size_t(0), _GET_VERSION)))


def handled(abi: int) -> int:
    """Every access to files that this version can refuse."""
    return _FIRST | (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0) | (_IOCTL_DEV if abi >= 5 else 0)


def everything(abi: int) -> int:
    """In its own folder: everything except device files."""
    return handled(abi) & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV)


def readable(paths: Iterable[Path], hidden: Iterable[Path]) -> list[Path]:
    """The paths, with a folder that contains something hidden replaced by its other entries."""
    secret = [Path(os.path.realpath(path)) for path in hidden]
    return [found for path in paths for found in _without(Path(os.path.realpath(path)), secret)]


def profile_rules(profile: Profile, abi: int, own: Iterable[Path]) -> list[tuple[str, int]]:
    """The rules of a profile. Beside something hidden or read-only in a writable place, existing entries can be written but nothing added.
    `own`: folders created for the program."""
    places = (profile.workspace, *profile.writable)
    inside = [path for path in profile.read_only if any(path.is_relative_to(one) for one in places)]
    outside = [*map(Path, (*SYSTEM_FOLDERS, *VISIBLE_FILES)), *(path for path in profile.read_only if path not in inside)]
    rules = [*((path, READ) for path in (*readable(outside, profile.hidden), *inside)), *((path, _READ_DIR) for path in places)]
    rules += [(path, everything(abi)) for path in (*readable(places, [*profile.hidden, *inside]), *own)]
    return [(str(path), rights) for path, rights in rules]


def _without(path: Path, hidden: list[Path]) -> Iterator[Path]:
    if any(path == secret for secret in hidden):
        return
    if not any(secret.is_relative_to(path) for secret in hidden):
        yield path
        return
    try:
        inside = sorted(path.iterdir())
    except OSError:
        return
    for one in inside:
        if not one.is_symlink():  # its target is readable by its own rule, or not at all
            yield from _without(one, hidden)
