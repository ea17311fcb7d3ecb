"""`make lab`: the same tests with long repetitions, and those marked `lab`, which `make test` leaves out."""

import os


def is_lab() -> bool:
    return os.environ.get("LAB", "") not in ("", "0")


def rounds(short: int, *, lab: int) -> int:
    """How often to repeat."""
    return lab if is_lab() else short
