"""What a coding agent says while it works, told on: text as chunks and as its answer, plan and tools as progress, usage as spending.

One per run of its program. Knows no vendor and no process: it is told what was heard. What it emits has the shapes of `agents.acp`.
"""

import asyncio
import contextlib
import re
import time

from remit.agents.coding.dialect import Began, Broke, Denied, Ended, Heard, Noted, Planned, Said, Scope, Spent, Trouble, Used
from remit.agents.coding.faults import last_trouble
from remit.agents.tail import Tail
from remit.agents.telling import OVER, ToolCalls, Words, tell_plan
from remit.core.errors import Stopped, Unavailable
from remit.flow.context import Context

ITEMS_KEPT = 10_000
"""Messages and steps whose usage may be said again; the oldest are forgotten."""
_NOT_ALLOWED = "nothing in its allow-list fits"
_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,199}")


def is_session(name: object) -> bool:
    """Whether a vendor's word for a session can be handed back to it as an argument: no option, no path, no odd signs."""
    return isinstance(name, str) and _SESSION.fullmatch(name) is not None


class Account:
    """Tokens and money of one run, each counted once however often it is said."""

    __slots__ = ("_before", "_cost", "_items", "_tokens")

    def __init__(self, before: int = 0) -> None:
        """`before`: tokens of the session that earlier runs have counted."""
        self._before = before
        self._items: dict[str, tuple[int, float]] = {}
        self._tokens = 0
        self._cost = 0.0

    @property
    def session_tokens(self) -> int:
        return self._before + self._tokens

    def more(self, spent: Spent) -> tuple[int, float]:
        """What of it has not been counted yet."""
        match spent.scope:
            case Scope.ITEM:
                tokens, cost = self._items.get(spent.key, (0, 0.0))
                self._items[spent.key] = (max(tokens, spent.tokens), max(cost, spent.cost))
                if len(self._items) > ITEMS_KEPT:
                    del self._items[next(iter(self._items))]
            case Scope.RUN:
                tokens, cost = self._tokens, self._cost
            case Scope.SESSION:
                tokens, cost = self.session_tokens, self._cost
        more = max(0, spent.tokens - tokens), max(0.0, spent.cost - cost)
        self._tokens += more[0]
        self._cost += more[1]
        return more


class Hearing:
    def __init__(self, ctx: Context, vendor: str, *, session: str | None, counted: int) -> None:
        self._ctx = ctx
        self._vendor = vendor
        self._account = Account(counted)
        self._last, self._whole = Tail("\n\n"), Tail("\n\n")
        self._printed = Tail()
        self._tools = ToolCalls(ctx)
        self._words = Words(ctx)
        self._in_trouble = ""
        """What was last heard of a service that does not answer; empty when it has answered since."""
        self._heard_at: float | None = None
        """When it last said something or used a tool, on the wall clock."""
        self._kept: object = None
        self.session = session
        self.ended: str | None = None
        self.over = asyncio.Event()
        """Set when the turn has come to its end, by its own word."""
        self.is_broken = False
        self.trouble: Trouble | None = None

    @property
    def is_over(self) -> bool:
        return self.over.is_set()

    @property
    def printed(self) -> str:
        """What it printed that was none of its stream."""
        return self._printed.text()

    @property
    def last(self) -> str:
        """Its answer: its final word, or what it said last."""
        return self.ended if self.ended else self._last.text()

    @property
    def whole(self) -> str:
        return self._whole.text()

    async def hear(self, heard: Heard) -> None:
        match heard:
            case Began():
                await self._began(heard.session)
            case Said():
                self._said(heard.text)
            case Used():
                self._used(heard)
            case Planned():
                tell_plan(self._ctx, heard.steps)
            case Spent():
                tokens, cost = self._account.more(heard)
                if tokens or cost:
                    self._ctx.spend(tokens=tokens, cost=cost)
            case Denied():
                self._tools.decide(heard.call_id, kind=heard.tool, title=heard.detail, decision="denied", because=_NOT_ALLOWED)
            case Noted():
                self._in_trouble = heard.message if heard.is_trouble else self._in_trouble
                self._ctx.progress(heard.message)
            case Ended():
                self.ended, self.trouble = heard.text, None
                self.over.set()
            case Broke():
                self.is_broken = True
            case Trouble():
                self.trouble = heard
                self._ctx.progress(f"{self._vendor}: {heard.message}")

    def hear_plain(self, text: str) -> None:
        """A line that is no JSON: perhaps all that this program prints."""
        self._printed.add(text)
        if text.strip():
            self._ctx.emit(text)

    def end(self, *, is_whole: bool, stderr: str = "") -> None:
        """Nothing more comes. `is_whole`: its turn came to its end, so that what it said last is its answer."""
        with contextlib.suppress(Stopped):  # its delegation has ended: nobody hears it any more
            if is_whole:
                self._words.end_turn()
                return
            if self.ended and self.ended != self._last.text():
                self._said(self.ended)  # its final word is no answer any more, but is handed back with what it left
            self._words.end_message()
            self._tell_trouble(self._in_trouble or last_trouble(stderr, self._heard_at))

    def _tell_trouble(self, words: str) -> None:
        """It was stopped while it tried its model again and again: with what it left, that is handed back too."""
        if words and self.trouble is None:
            self._ctx.emit({"trouble": {"vendor": self._vendor, "message": words}})
            if words != self._in_trouble:
                self._ctx.progress(f"{self._vendor}: {words}")

    async def keep(self) -> None:
        """The session's handle, and what of it is counted, for whoever goes on in it. Work does not end because it cannot be kept."""
        kept = {"vendor": self._vendor, "session": self.session, "tokens": self._account.session_tokens}
        if self.session is None or kept == self._kept:
            return
        try:
            await self._ctx.checkpoint(kept)
            self._kept = kept
        except Unavailable as error:
            self._ctx.progress(f"The session {self.session} of {self._vendor} could not be kept: {error.message}")

    async def _began(self, session: str) -> None:
        if not is_session(session) or (session == self.session and self._kept is not None):
            return
        self.session = session
        self._ctx.progress(f"Session {session} of {self._vendor}.")
        await self.keep()

    def _said(self, text: str) -> None:
        if not text.strip():
            return
        self._in_trouble, self._heard_at = "", time.time()
        self._last.add(text)
        self._whole.add(text)
        self._words.end_message()
        self._words.say(text)

    def _used(self, used: Used) -> None:
        self._in_trouble, self._heard_at = "", time.time()
        self._last.clear()  # what it says after a tool is a message of its own
        self._words.end_message()
        if used.status in OVER:
            self._tools.end(used.call_id, used.status, kind=used.tool, title=used.detail, why=used.why)
        else:
            self._tools.begin(used.call_id, kind=used.tool, title=used.detail)
