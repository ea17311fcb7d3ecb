"""The files of a delegation that are in an object store, for other machines."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ShippedFile:
    """A file that is in the object store."""

    path: str
    """Relative to the root of the project."""
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a delegation that are in the object store."""

    files: tuple[ShippedFile, ...]
    at: float
    """Wall clock of its worker: they are as they were then."""
    attempt: int = 1
    worker: str = ""
    base: str = ""
    """The commit that its worktree began from, if it has one."""
