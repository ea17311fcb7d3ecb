"""The answer to a message on a terminal: Markdown over a live tree of what is handed on, and a line that tells how it stands.

Draws, and knows no conversation. Used by `ask` and `chat`; the words come from a model and are made harmless before they are drawn.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import ClassVar

from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.live import Live
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.segment import Segment, Segments
from rich.text import Text

from remit.cli.approving import standing_still
from remit.cli.chat_stage import REPLY_ENDS, VOID, Breaks
from remit.cli.chat_text import Blocks, harmless
from remit.cli.rollcall import WORDS
from remit.cli.tree import SPINNER, Node, View, collapsed, draw, forest
from remit.cli.watch import Watch
from remit.core.events import Event
from remit.core.record import Record
from remit.engine.vitals import signs_with_children, stuck

DRAW_SECONDS = 0.05
LEAST_ROWS = 3
LOOKS = 2
"""The first may have been begun before."""
CODE_THEME = "ansi_dark"
DRAWN_CHARACTERS = 30_000
"""Of one block: to lay out more takes longer than anybody waits for."""


@dataclass(slots=True)
class _Seen:
    """What is known of the delegations below the message."""

    records: list[Record] = field(default_factory=list)
    watch: Watch | None = None
    heard: dict[str, float] = field(default_factory=dict)
    printed: set[str] = field(default_factory=set)

    def nodes(self) -> list[Node]:
        """Those that the message itself handed on, in their order."""
        roots = forest(self.records)
        return roots[0].children if roots else []


class Screen:
    """A terminal: what is finished is printed once and stays; below it, redrawn in place, what is still being said, the delegations that
    run, and a line that tells how it stands. A delegation that ended is one line, where it happened."""

    def __init__(self, console: Console, status: Callable[[Watch | None, Sequence[Record]], Text]) -> None:
        self._console = console
        self._status = status
        self._blocks = Blocks()
        self._breaks = Breaks()
        self._seen = _Seen()
        self._drawn_at = 0.0
        self._said_since = False
        self._is_still = False
        self._held: list[tuple[str, float]] = []
        """Said while a question was being asked, or before it was seen what came of the reply before."""
        self._looks = 0
        """So many looks at the delegations are still to be taken before more is said: a reply has ended, and may have handed work on."""
        self._last_was_line = False
        self._live = self._new()
        self._registered = standing_still(self._pause, self._resume)

    def _new(self) -> Live:
        return Live(console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop")

    def __enter__(self) -> "Screen":
        self._live.__enter__()
        self._registered.__enter__()
        self._draw()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._registered.__exit__(kind, error, trace)
        self._print_ended()
        while self._held:
            self._looks = 0
            self._release()
        self._flush()
        self._print_ended(everything=True)
        self._live.__exit__(kind, error, trace)

    # ---- what happens

    def hear(self, text: str, at: float) -> None:
        if not self._is_still and not self._looks and any(not node.record.state.is_settled for node in self._running()):
            self._looks = LOOKS  # they have ended by now, or it speaks while they run: the next look tells
        if self._is_still or self._looks:
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
        """Say what was held, as far as the end of a reply."""
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
        if self._is_still:
            return
        known = len(self._seen.records)
        self._seen.records, self._seen.watch = records, watch
        if self._breaks.noticed(records[max(1, known) :]):
            self._flush()  # what was said before they were handed on
        self._print_ended()
        self._looks = max(0, self._looks - 1)
        self._release()
        self._draw()

    # ---- what is printed for good

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
        self._console.print(Group(*([Text()] if was_line else []), *_rendered(block, self._console), Text()), soft_wrap=True)

    def _print_ended(self, *, everything: bool = False) -> None:
        """Each delegation of the message that has ended, with all below it, as one line."""
        ended = [node for node in self._running() if node.record.state.is_settled or everything]
        self._seen.printed.update(node.record.session_id for node in ended)
        if ended:
            self._draw()
        for node in ended:
            self._print(collapsed(node, View(now=time.time(), tokens=self._tokens())))

    def _print(self, line: Text) -> None:
        self._console.print(line, no_wrap=True, overflow="ellipsis")
        self._last_was_line = True

    # ---- what is drawn anew

    def _draw(self) -> None:
        self._drawn_at = time.monotonic()
        self._live.update(Group(*self._picture()), refresh=True)

    def _picture(self) -> list[RenderableType]:
        height = max(LEAST_ROWS, self._console.height - 2)
        trees, lines = self._trees(max(LEAST_ROWS, height // 2))
        parts: list[RenderableType] = []
        if unfinished := self._blocks.rest.strip("\n"):
            if self._last_was_line:
                parts.append(Text())
            parts += [_tail(unfinished, self._console, height - 3 - lines), Text()]
        return [*parts, *trees, self._status(self._seen.watch, self._seen.records)]

    def _running(self) -> list[Node]:
        return [node for node in self._seen.nodes() if node.record.session_id not in self._seen.printed]

    def _trees(self, rows: int) -> tuple[list[RenderableType], int]:
        """Within so many rows: where they are too many, each is one line, and tells how much lies below it. How many rows it takes."""
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
        looks = {r.session_id: WORDS[stuck(r, now, signs[r.session_id], living)] for r in self._seen.records if not r.state.is_settled}
        words = self._seen.watch.words if self._seen.watch else {}
        return View(now=now, words=words, is_moving=True, tokens=self._tokens(), stuck=looks)

    def _tokens(self) -> dict[str, int]:
        return self._seen.watch.tokens if self._seen.watch else {}

    # ---- a question is asked: it has the terminal for itself

    def _pause(self) -> None:
        self._is_still = True
        self._live.stop()

    def _resume(self) -> None:
        self._live = self._new()
        self._live.start()
        self._is_still = False
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
