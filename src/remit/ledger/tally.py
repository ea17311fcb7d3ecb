"""Errors counted in memory, each kind once: what one visit to the file brings along.

Bounded: beyond a number of different kinds, further ones are only counted, by type and origin. Knows no file. Not for several
threads at once: `writer` guards it.
"""

import re
from dataclasses import dataclass, field, replace

from remit.core.errors import ErrorInfo
from remit.core.secrets import redacted_text
from remit.ledger.similar import similarity_key

MESSAGE_LIMIT = 2_000
STACK_LIMIT = 8_000
KINDS_LIMIT = 2_000
ROOTS_LIMIT = 8
"""Trees remembered for one kind of error between two visits to the file: enough to relate what failed together."""

_NOTHING = re.compile(r"nothing (?:added )?to commit", re.IGNORECASE)
_ONLY_NOTHING = re.compile(r"\s*(?:git(?: commit)?(?: failed)?:?\s*)?(?:on branch \S+\s+)?nothing (?:added )?to commit", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """An error and where it happened."""

    error: ErrorInfo
    agent: str | None = None
    command: str | None = None
    session_id: str | None = None
    task_number: int | None = None
    path: tuple[str, ...] = ()
    """The delegation path, from the root to the agent."""
    stack_trace: str = ""
    root_id: str | None = None
    """The tree it belongs to; what fails in one tree is related."""

    @property
    def origin(self) -> str:
        return self.agent or self.command or ""

    @property
    def is_an_error(self) -> bool:
        """ "Nothing to commit" is none (S4.7)."""
        if self.error.code == "GIT_COMMIT_FAILED" or self.error.type == "git":
            return _NOTHING.search(self.error.message) is None
        return _ONLY_NOTHING.match(self.error.message) is None


@dataclass(slots=True, kw_only=True)
class Tally:
    """One kind of error since the last visit to the file."""

    noted: Noted
    """Its newest occurrence."""
    count: int
    first_at: float
    last_at: float
    roots: dict[str, None] = field(default_factory=dict)
    """The trees it was seen in, oldest first."""

    def absorb(self, other: "Tally") -> None:
        self.count += other.count
        self.first_at = min(self.first_at, other.first_at)
        if other.last_at >= self.last_at:
            self.last_at = other.last_at
            self.noted = other.noted if other.noted.stack_trace else replace(other.noted, stack_trace=self.noted.stack_trace)
        self.roots |= other.roots
        while len(self.roots) > ROOTS_LIMIT:
            del self.roots[next(iter(self.roots))]


class Tallies:
    __slots__ = ("by_key",)

    def __init__(self) -> None:
        self.by_key: dict[str, Tally] = {}

    def __bool__(self) -> bool:
        return bool(self.by_key)

    def add(self, noted: Noted, at: float) -> None:
        if noted.is_an_error:
            roots = dict.fromkeys([noted.root_id]) if noted.root_id else {}
            self._absorb(Tally(noted=_tidied(noted), count=1, first_at=at, last_at=at, roots=roots))

    def merge(self, other: "Tallies") -> None:
        for tally in other.by_key.values():
            self._absorb(tally)

    def _absorb(self, tally: Tally) -> None:
        key = key_of(tally.noted)
        if key not in self.by_key and len(self.by_key) >= KINDS_LIMIT:
            tally.noted = _only_counted(tally.noted)
            key = key_of(tally.noted)
        present = self.by_key.get(key)
        if present is None:
            self.by_key[key] = tally
        else:
            present.absorb(tally)


def key_of(noted: Noted) -> str:
    return similarity_key(noted.error.type, noted.error.code, noted.origin, noted.error.message)


def _only_counted(noted: Noted) -> Noted:
    message = "Too many different errors at once: this one stands for further ones of its type and is only counted."
    return replace(noted, error=replace(noted.error, message=message), stack_trace="")


def _tidied(noted: Noted) -> Noted:
    """What a file can hold: no half characters, no secrets, and no more than a person reads.

    Struck out here, before it is cut (half of a secret is not recognised) and once: what stands in the file is not looked at again.
    """
    error = noted.error
    return replace(
        noted,
        error=replace(
            error,
            type=redacted_text(_writable(error.type)),
            code=redacted_text(_writable(error.code)),
            message=_beginning(redacted_text(_writable(error.message))),
            recommendation=_beginning(redacted_text(_writable(error.recommendation))),
        ),
        agent=noted.agent and _writable(noted.agent),
        command=noted.command and _writable(noted.command),
        path=tuple(map(_writable, noted.path)),
        stack_trace=_end(redacted_text(_writable(noted.stack_trace))),
    )


def _beginning(text: str) -> str:
    more = len(text) - MESSAGE_LIMIT
    return text if more <= 0 else f"{text[:MESSAGE_LIMIT]} … ({more} more characters)"


def _end(text: str) -> str:
    more = len(text) - STACK_LIMIT
    return text if more <= 0 else f"({more} characters before) … {text[-STACK_LIMIT:]}"


def _writable(text: str) -> str:
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
