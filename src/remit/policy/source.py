"""Where the rules come from: the project's file, a text that was given, or the default. Reads files; understands nothing of them."""

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Protocol

from remit.policy.reading import Faulty

FILE = "policy.cedar"
DEFAULT_NAME = "the default policy"
LARGEST_BYTES = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    name: str
    """What they are called in messages."""
    text: str
    fault: Faulty | None = None
    """Why the text could not even be read."""

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "backslashreplace")).hexdigest()


class Source(Protocol):
    def read(self) -> Rules: ...
    def has_changed(self) -> bool: ...


class Given:
    """A text that was handed over: it stays as it is."""

    def __init__(self, text: str, name: str = "the policy given") -> None:
        self._rules = Rules(name=name, text=text)

    def read(self) -> Rules:
        return self._rules

    def has_changed(self) -> bool:
        return False


class File:
    """A file, looked at again and again; where it may be missing, the default holds until it is there."""

    def __init__(self, path: Path, name: str, *, may_be_missing: bool) -> None:
        self._path = path
        self._name = name
        self._may_be_missing = may_be_missing
        self._seen: tuple[int, ...] | None = None

    def has_changed(self) -> bool:
        return self._look() != self._seen

    def _look(self) -> tuple[int, ...] | None:
        """None when there is nothing; a link that leads nowhere is something."""
        try:
            seen = os.stat(self._path)
        except OSError:
            return () if os.path.lexists(self._path) else None
        return seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino

    def read(self) -> Rules:
        self._seen = self._look()
        try:
            data = self._bytes()
        except FileNotFoundError:
            if self._may_be_missing and not os.path.lexists(self._path):
                return default_rules()
            return self._unreadable("there is no such file")
        except OSError as error:
            return self._unreadable(error.strerror or str(error))
        if len(data) > LARGEST_BYTES:
            return self._unreadable(f"it is larger than {LARGEST_BYTES} bytes")
        try:
            return Rules(name=self._name, text=data.decode())
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            return self._unreadable(f"line {line} is not UTF-8")

    def _bytes(self) -> bytes:
        """Of a file: what else may have the name (a pipe, a device) is not waited for."""
        descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is not a file")
            return opened.read(LARGEST_BYTES + 1)

    def _unreadable(self, why: str) -> Rules:
        fault = Faulty(f"{self._name} cannot be read: {why}.", line=1, advice="Mend or remove it.")
        return Rules(name=self._name, text="", fault=fault)


def default_text() -> str:
    return files("remit.policy").joinpath("default.cedar").read_text("utf-8")


def default_rules() -> Rules:
    return Rules(name=DEFAULT_NAME, text=default_text())


def project_file(folder: Path) -> File:
    """Of the project whose `.remit` is `folder`."""
    return File(folder / FILE, f"{folder.name}/{FILE}", may_be_missing=True)


def source_of(given: str | Path) -> Source:
    """A path, or rules as text: text holds a semicolon, as every rule ends with one."""
    if isinstance(given, Path) or (";" not in given and given.strip()):
        return File(Path(given), str(given), may_be_missing=False)
    return Given(given)
