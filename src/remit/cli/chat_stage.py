"""Where the answer to a message appears while it comes: what a stage is, and the plain one, for programs and pipes.

A stage is a `live.Show` that also hears the words. It knows nothing of conversations; `chat_turn` tells it what happens. On a terminal
it is `chat_screen`'s.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Protocol

from remit.cli.chat_text import harmless
from remit.cli.live import Lines, Show
from remit.cli.watch import Watch
from remit.core.events import Event, EventKind
from remit.core.record import Record

REPLY_ENDS = "\n\n"
"""What the assistant says on its own when a reply is whole (`assistant.voice`)."""
VOID = "What was said above is void: another model begins anew."


class Stage(Show, Protocol):
    def hear(self, text: str, at: float) -> None:
        """Words, and when they were said (wall clock)."""
        ...

    def void(self) -> None:
        """What was said since the last delegation is void: another model begins anew."""
        ...


class Breaks:
    """Puts a paragraph's break between what was said before delegations and what is said after them."""

    def __init__(self) -> None:
        self._held = ""
        """Line ends that are due before the next words: at the very end nobody wants them."""
        self._at = 0.0
        self.has_words = False

    def noticed(self, begun: Sequence[Record]) -> bool:
        """Of new delegations: whether they were begun after what has been said last. They may be heard of late."""
        is_after = any(record.created_at >= self._at for record in begun)
        if is_after:
            self.due()
        return is_after

    def due(self) -> None:
        self._held = "\n\n"

    def joined(self, text: str, at: float) -> str:
        self._at = max(self._at, at)
        words = text if self.has_words else text.lstrip("\n")
        inked = words.rstrip("\n")
        if not inked:
            self._held = (self._held + words)[-2:] if self.has_words else ""
            return ""
        before = ("\n\n" if len(self._held) > 1 else self._held) if self.has_words else ""
        if before == "\n\n":
            inked = inked.lstrip("\n")
        self._held, self.has_words = words[len(words.rstrip("\n")) :], True
        return before + inked


class Plain:
    """For a program, or a terminal without colours: the words on stdout as they come; what else happens goes to `aside`."""

    def __init__(self, aside: Show, write: Callable[[str], None]) -> None:
        self._aside = aside
        self._write = write
        self._breaks = Breaks()
        self._seen = 0

    def __enter__(self) -> "Plain":
        self._aside.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._aside.__exit__(kind, error, trace)
        if self._breaks.has_words:
            self._write("\n")

    def hear(self, text: str, at: float) -> None:
        self._write(self._breaks.joined(harmless(text), at))

    def void(self) -> None:
        """It has been read already: all that can be done is to say so."""
        self._breaks.due()
        self._write(self._breaks.joined(f"[{VOID}]", time.time()))
        self._breaks.due()

    def show(self, records: list[Record], watch: Watch, events: list[Event]) -> None:
        self._breaks.noticed(records[max(1, self._seen) :])
        self._seen = len(records)
        # The words of the one that was asked are the answer itself.
        asked = records[0].session_id if records else ""
        told = [event for event in events if event.session_id != asked or event.kind not in (EventKind.DATA, EventKind.SPENT)]
        self._aside.show(records, watch, told)


class Asides(Lines):
    """Of the message itself nothing is told: its words are the answer."""

    def _changes(self, record: Record) -> Iterator[tuple[float, int, str, str, str]]:
        if record.parent_id is not None:
            yield from super()._changes(record)


def to_stdout(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
