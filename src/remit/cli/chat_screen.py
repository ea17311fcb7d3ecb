"""The answer of the assistant on a terminal: Markdown above a live tree of its delegations, and a status line."""

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.segment import Segment, Segments
from rich.text import Text

from remit.cli.events import Spent, Watch
from remit.cli.live import STUCK_WORDS, Lines, Show
from remit.cli.render import count, duration, harmless, one_line
from remit.cli.tree import SPINNER, Node, PausableLive, View, collapsed, draw, forest
from remit.core.events import Event, EventKind
from remit.core.record import Record
from remit.system.liveness import signs_with_children, stuck

if TYPE_CHECKING:
    from remit.app import Remit
    from remit.builtin.assistant.conversations import Conversation
    from remit.cli.ask import Answer


DRAW_SECONDS = 0.05
LEAST_ROWS = 3
LOOKS = 2
"""The first may have been begun before."""
CODE_THEME = "ansi_dark"
DRAWN_CHARACTERS = 30_000
"""Larger blocks are not laid out, which would take long."""


@dataclass(slots=True)
class _Seen:
    """The delegations below the message."""

    records: list[Record] = field(default_factory=list)
    watch: Watch | None = None
    heard: dict[str, float] = field(default_factory=dict)
    printed: set[str] = field(default_factory=set)

    def nodes(self) -> list[Node]:
        """Those of the message itself, in their order."""
        roots = forest(self.records)
        return roots[0].children if roots else []


class Screen(PausableLive):
    """A terminal: finished text is printed once; below it, redrawn in place, unfinished text, running delegations and a status line.
    A delegation that ended is one line, where it happened."""

    def __init__(self, console: Console, status: Callable[[Watch | None, Sequence[Record]], Text]) -> None:
        super().__init__(console)
        self._status = status
        self._blocks = Blocks()
        self._breaks = Breaks()
        self._seen = _Seen()
        self._drawn_at = 0.0
        self._said_since = False
        self._held: list[tuple[str, float]] = []
        """Words that arrived during a question, or before the delegations of the previous reply were seen."""
        self._looks = 0
        """Looks at the delegations to take before more is said: a reply has ended, and may have delegated."""
        self._last_was_line = False

    def __enter__(self) -> Self:
        super().__enter__()
        self._draw()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._print_ended()
        while self._held:
            self._looks = 0
            self._release()
        self._flush()
        self._print_ended(everything=True)
        super().__exit__(kind, error, trace)

    # ---- input

    def hear(self, text: str, at: float) -> None:
        if not self.is_paused and not self._looks and any(not node.record.state.is_settled for node in self._running()):
            self._looks = LOOKS  # the next look shows whether they have ended
        if self.is_paused or self._looks:
            self._held.append((text, at))
        else:
            self._say(text, at)

    def _say(self, text: str, at: float) -> None:
        if text == REPLY_ENDS:
            self._looks = LOOKS
            self._flush()
        for block in self._blocks.feed(self._breaks.joined(harmless(text), at)):
            self._print_block(block)
        if time.monotonic() - self._drawn_at > DRAW_SECONDS:
            self._draw()

    def _release(self) -> None:
        """Say held words up to the end of a reply."""
        while self._held and not self._looks:
            self._say(*self._held.pop(0))

    def void(self) -> None:
        self._looks = 0
        self._release()
        if self._blocks.rest.strip() or self._said_since:
            self._flush()
            self._print(Text(VOID, style="yellow"))
        self._breaks.due()

    def show(self, records: list[Record], watch: Watch, events: list[Event]) -> None:
        for event in events:
            self._seen.heard[event.session_id] = event.at
        if self.is_paused:
            return
        known = len(self._seen.records)
        self._seen.records, self._seen.watch = records, watch
        if self._breaks.noticed(records[max(1, known) :]):
            self._flush()  # words before the delegations
        self._print_ended()
        self._looks = max(0, self._looks - 1)
        self._release()
        self._draw()

    # ---- printed once

    def _flush(self) -> None:
        for block in self._blocks.end():
            self._print_block(block)
        self._said_since = False

    def _print_block(self, block: str) -> None:
        if not block.strip():
            return
        self._said_since = True
        was_line, self._last_was_line = self._last_was_line, False
        self._draw()  # what is printed now is not drawn below itself
        self.console.print(Group(*([Text()] if was_line else []), *_rendered(block, self.console), Text()), soft_wrap=True)

    def _print_ended(self, *, everything: bool = False) -> None:
        """Each delegation of the message that has ended, with all below it, as one line."""
        ended = [node for node in self._running() if node.record.state.is_settled or everything]
        self._seen.printed.update(node.record.session_id for node in ended)
        if ended:
            self._draw()
        for node in ended:
            self._print(collapsed(node, View(now=time.time(), tokens=self._tokens())))

    def _print(self, line: Text) -> None:
        self.console.print(line, no_wrap=True, overflow="ellipsis")
        self._last_was_line = True

    # ---- redrawn

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        self.draw(*self._picture())

    def _picture(self) -> list[RenderableType]:
        height = max(LEAST_ROWS, self.console.height - 2)
        trees, lines = self._trees(max(LEAST_ROWS, height // 2))
        parts: list[RenderableType] = []
        if unfinished := self._blocks.rest.strip("\n"):
            if self._last_was_line:
                parts.append(Text())
            parts += [_tail(unfinished, self.console, height - 3 - lines), Text()]
        return [*parts, *trees, self._status(self._seen.watch, self._seen.records)]

    def _running(self) -> list[Node]:
        return [node for node in self._seen.nodes() if node.record.session_id not in self._seen.printed]

    def _trees(self, rows: int) -> tuple[list[RenderableType], int]:
        """The trees, or one line each if they are too high, and how many rows they take."""
        running = self._running()
        view = self._view()
        needed = sum(node.size() for node in running)
        if needed <= rows:
            return [draw(node, view) for node in running], needed
        shown = running if len(running) <= rows else running[: rows - 1]
        more = [Text(f"… and {len(running) - len(shown)} more", style="dim")] if len(running) > len(shown) else []
        return [*(collapsed(node, view) for node in shown), *more], len(shown) + len(more)

    def _view(self) -> View:
        now = time.time()
        signs = signs_with_children(self._seen.records, self._seen.heard)
        living = {record.owner for record in self._seen.records}
        looks = {
            r.session_id: STUCK_WORDS[stuck(r, now, signs[r.session_id], living)] for r in self._seen.records if not r.state.is_settled
        }
        words = self._seen.watch.words if self._seen.watch else {}
        return View(now=now, words=words, is_moving=True, tokens=self._tokens(), stuck=looks)

    def _tokens(self) -> dict[str, int]:
        return self._seen.watch.tokens if self._seen.watch else {}

    def _resume(self) -> None:
        super()._resume()
        self._release()


class _Heading(Heading):
    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}
    """All on the left, where reading begins."""


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _Heading}


def print_markdown(text: str, console: Console, style: str = "none") -> None:
    console.print(Group(*_rendered(text, console, style)), soft_wrap=True)


def _rendered(text: str, console: Console, style: str = "none") -> list[RenderableType]:
    """Without the empty lines that some of its parts bring along. Links show where they lead. What is very long is left as it came."""
    if len(text) > DRAWN_CHARACTERS:
        return [Text(text, style=style)]
    lines = console.render_lines(_Markdown(text, code_theme=CODE_THEME, hyperlinks=False, style=style), pad=False)
    inked = [number for number, line in enumerate(lines) if any(segment.text.strip() for segment in line)]
    kept = lines[inked[0] : inked[-1] + 1] if inked else []
    return [Segments([segment for line in kept for segment in (*line, Segment.line())])]


def _tail(text: str, console: Console, rows: int) -> Text:
    """The last lines of what is being said, as wide as the terminal: what has scrolled by is drawn when it is finished."""
    rows = max(1, rows)
    text = text[-rows * max(10, console.width) :]
    lines = Text("\n".join(text.split("\n")[-rows:])).wrap(console, max(10, console.width), tab_size=4)
    return Text("\n").join(list(lines)[-rows:])


def spinner(now: float) -> str:
    return SPINNER[int(now * 10) % len(SPINNER)]


REPLY_ENDS = "\n\n"
"""What the assistant says on its own when a reply is whole (`assistant.stream`)."""
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
        """Line ends due before the next words; dropped at the end."""
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
    """Without lines for the message itself: its words are the answer."""

    def _changes(self, record: Record) -> Iterator[tuple[float, int, str, str, str]]:
        if record.parent_id is not None:
            yield from super()._changes(record)


def to_stdout(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class Blocks:
    """Markdown as it grows. A block is finished when the next one has begun: nothing that comes later changes how it is drawn."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._open = ""
        """The line that has not ended yet."""
        self._fence = ""
        self._was_blank = False

    @property
    def rest(self) -> str:
        """What is not finished."""
        return "\n".join([*self._lines, self._open])

    def feed(self, text: str) -> list[str]:
        """The blocks that are finished by it."""
        finished: list[str] = []
        *lines, self._open = (self._open + text).split("\n")
        for line in lines:
            if self._begins_a_block(line):
                finished.append(self._taken())
            self._take(line)
        if self._begins_a_block(self._open):
            finished.append(self._taken())
        return finished

    def end(self) -> list[str]:
        """Whatever is left; ready for a new text."""
        last, self._open = self._open, ""
        finished = self.feed(last + "\n") if last else []
        rest = self._taken()
        self._fence = ""
        return [block for block in (*finished, rest) if block.strip()]

    def _begins_a_block(self, line: str) -> bool:
        """Behind an empty line; what is indented may belong to the list above."""
        return self._was_blank and not self._fence and line[:1].strip() != "" and any(map(str.strip, self._lines))

    def _take(self, line: str) -> None:
        self._lines.append(line)
        self._was_blank = not line.strip()
        mark = _FENCE.match(line)
        if mark and not self._fence:
            self._fence = mark[1]
        elif mark and line.strip().startswith(self._fence) and not line.strip().strip(self._fence[0]):
            self._fence = ""

    def _taken(self) -> str:
        block, self._lines, self._was_blank = "\n".join(self._lines), [], False
        return block.strip("\n")


def spent_in(conversation: "Conversation") -> Spent:
    """As it was written down with each of its messages."""
    from remit.builtin.assistant.conversations import CostLine

    total = Spent()
    for line in conversation.lines:
        if isinstance(line, CostLine):
            total += Spent(tokens=line.tokens, cost=line.cost or 0.0, has_unknown=line.cost is None and line.tokens > 0)
    return total


def model_name(remit: "Remit") -> str:
    names = remit.settings.model
    return f"{names[0]} (+{len(names) - 1})" if len(names) > 1 else names[0] if names else "no model"


class Meter:
    """The line below what is shown while a message is worked on."""

    def __init__(self, remit: "Remit") -> None:
        self._model = model_name(remit)
        self._began = time.monotonic()

    def line(self, watch: "Watch | None", records: "Sequence[Record]") -> Text:
        running = sum(not record.state.is_settled for record in records[1:])
        tokens = sum((watch.tokens if watch else {}).values())
        parts = [one_line(self._model, 40), duration(time.monotonic() - self._began)]
        parts += [count(tokens, "token")] if tokens else []
        parts += [f"{count(running, 'delegation')} running"] if running else []
        line = Text(f"{spinner(time.time())} ", style="cyan", no_wrap=True, overflow="ellipsis")
        return line.append(" · ".join([*parts, "Ctrl-C stops it"]), style="dim")


def closing_line(remit: "Remit", answer: "Answer", *, with_conversation: bool = True) -> Text:
    """Below an answer that is whole."""
    parts = [one_line(model_name(remit), 40), duration(answer.result.metadata.duration_seconds), answer.spent.words()]
    parts += [count(len(answer.delegations), "delegation")] if answer.delegations else []
    parts += [answer.conversation] if with_conversation else []
    return Text(" · ".join(part for part in parts if part), style="dim", no_wrap=True, overflow="ellipsis")
