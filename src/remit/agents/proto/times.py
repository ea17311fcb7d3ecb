"""Nanoseconds, which protobuf carries, and seconds, which we count in: converted once, at the border, and back to the same."""

NANO = 10**9
_LONGEST = 2**63 - 1


def nanoseconds(seconds: float | None) -> int:
    """None is 0: not said. The fraction is counted apart, since the nanoseconds of a date are more than a double holds."""
    if seconds is None:
        return 0
    try:
        whole = int(seconds)
        return max(-_LONGEST, min(_LONGEST, whole * NANO + round((seconds - whole) * NANO)))
    except (OverflowError, ValueError):  # for ever
        return _LONGEST


def seconds(nanoseconds: int) -> float | None:
    """0 is None."""
    return nanoseconds // NANO + (nanoseconds % NANO) / NANO if nanoseconds else None
