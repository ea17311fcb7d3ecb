"""`make lab`: the same tests with many repetitions, plus those marked `lab`, which `make test` skips."""

import os


def is_lab() -> bool:
    return os.environ.get("LAB", "") not in ("", "0")


def rounds(short: int, *, lab: int) -> int:
    """Number of repetitions."""
    return lab if is_lab() else short
