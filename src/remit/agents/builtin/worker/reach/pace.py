"""Not more often than is polite: requests to one provider are spaced out over all processes of the project. Used by `worker.web_search`.

A small file per provider below `.remit/run` holds when the next one may go; whoever comes takes the next turn under a lock and waits.
"""

import fcntl
import hashlib
import os
import re
import time
from pathlib import Path

LONGEST_WAIT = 3600.0
"""A turn further off is a clock that was set back, or a file that somebody wrote: it does not count."""


def turn(folder: Path, provider: str, seconds_between: float, longest: float = LONGEST_WAIT) -> float:
    """Seconds to wait until this request may go; its turn is taken with it, unless that is longer than it would wait."""
    now = time.time()
    with _Held(folder, provider) as held:
        start = max(now, held.next_at(now))
        if start - now <= longest:
            held.write(start + seconds_between)
    return start - now


def back_off(folder: Path, provider: str, seconds: float) -> None:
    """A provider said that it is too much: nobody asks it before that."""
    now = time.time()
    with _Held(folder, provider) as held:
        held.write(max(held.next_at(now), now + min(seconds, LONGEST_WAIT / 2)))


class _Held:
    """The file of a provider, held by this process alone. Held for microseconds, so waiting for it never holds anybody up."""

    def __init__(self, folder: Path, provider: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        plain = re.sub(r"[^a-z0-9]+", "-", provider.lower())[:40]
        self._path = folder / f"search-{plain}-{hashlib.sha256(provider.encode()).hexdigest()[:8]}"

    def __enter__(self) -> "_Held":
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def next_at(self, now: float) -> float:
        try:
            said = float(os.pread(self._fd, 64, 0))
        except ValueError:
            return now
        return said if said - now <= LONGEST_WAIT else now

    def write(self, moment: float) -> None:
        data = f"{moment:.3f}".encode()
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))
