"""The user that code runs as: an ordinary user, or root with the right to change to an unused user id.

Root of a container may have no rights and no other user ids: then it is confined like an ordinary user, if possible."""

import os
import random
from functools import cache
from pathlib import Path

_NEEDED = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "SETGID": 6, "SETUID": 7, "SETPCAP": 8}
"""Capabilities to change the user id, and to remove the files that it leaves. Containers have them by default."""
_FIRST_SPARE, _LAST_SPARE = 1_879_048_192, 2_147_483_646
"""Unused user ids, above those of containers."""
_FEWEST = 1000


@cache
def changes_user() -> bool:
    """Whether this is root with its usual rights and spare user ids."""
    if os.geteuid() != 0:
        return False
    rights = next(
        (int(line.split()[1], 16) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("CapEff:")), 0
    )
    return all(rights >> right & 1 for right in _NEEDED.values()) and _spare() is not None


def is_powerless_root() -> bool:
    """Root that cannot change its user id: without a user namespace, its code would run as root."""
    return os.geteuid() == 0 and not changes_user()


def spare_uid() -> int:
    """An unused user id for each run; 0 if the code runs as this user."""
    spare = _spare() if changes_user() else None
    return random.SystemRandom().randint(*spare) if spare else 0


def is_ours(uid: int) -> bool:
    """Whether it is this user, or an id that only this process uses."""
    spare = _spare() if changes_user() else None
    return uid == os.geteuid() or (spare is not None and spare[0] <= uid <= spare[1])


@cache
def _spare() -> tuple[int, int] | None:
    """From the largest range of both user and group ids: in a container there may be few of them."""
    ranges = []
    for name in ("uid_map", "gid_map"):
        given = [tuple(map(int, line.split())) for line in Path(f"/proc/self/{name}").read_text().splitlines()]
        first, count = max(((inside, count) for inside, _, count in given), key=lambda one: one[1], default=(0, 0))
        ranges.append((first, first + count - 1))
    first, last = max(first for first, _ in ranges), min(*(last for _, last in ranges), _LAST_SPARE)
    lowest = max(first + 1, min(_FIRST_SPARE, last - 5000))
    return (lowest, last) if last - lowest >= _FEWEST else None
