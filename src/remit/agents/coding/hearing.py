"""What a coding agent says while it works, told on: text as chunks and as its answer, plan and tools as progress, usage as spending.

One per run of its program. Knows no vendor and no process: it is told what was heard. What it emits has the shapes of `agents.acp`.
"""

import re

from remit.agents.coding.dialect import Began, Broke, Denied, Ended, Heard, Noted, Planned, Said, Scope, Spent, Trouble, Used
from remit.core.errors import Unavailable
from remit.flow.context import Context

ANSWER_LIMIT_CHARACTERS = 4 << 20
"""Of longer answers the end is kept: a return comes last."""
PIECE_CHARACTERS = 16 * 1024


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
        self._last: list[str] = []
        self._whole: list[str] = []
        self._size = 0
        self._tools: dict[str, str] = {}
        self._kept: object = None
        self.session = session
        self.ended: str | None = None
        self.is_over = False
        """The turn has come to its end, by its own word."""
        self.is_broken = False
        self.trouble: Trouble | None = None
        self.printed = ""
        """What it printed that was none of its stream."""

    @property
    def last(self) -> str:
        """Its answer: its final word, or what it said last."""
        return self.ended if self.ended else "\n\n".join(self._last)

    @property
    def whole(self) -> str:
        return "\n\n".join(self._whole)

    async def hear(self, heard: Heard) -> None:
        match heard:
            case Began():
                await self._began(heard.session)
            case Said():
                self._said(heard.text)
            case Used():
                self._used(heard)
            case Planned():
                self._planned(heard)
            case Spent():
                tokens, cost = self._account.more(heard)
                if tokens or cost:
                    self._ctx.spend(tokens=tokens, cost=cost)
            case Denied():
                self._ctx.emit({"permission": {"kind": heard.tool, "title": heard.detail, "decision": "denied"}})
                self._ctx.progress(f"Permission denied for {heard.tool}: {heard.detail}")
            case Noted():
                self._ctx.progress(heard.message)
            case Ended():
                self.is_over, self.ended, self.trouble = True, heard.text, None
            case Broke():
                self.is_broken = True
            case Trouble():
                self.trouble = heard
                self._ctx.progress(f"{self._vendor}: {heard.message}")

    def hear_plain(self, text: str) -> None:
        """A line that is no JSON: perhaps all that this program prints."""
        self.printed = (self.printed + text)[-ANSWER_LIMIT_CHARACTERS:]
        if text.strip():
            self._ctx.emit(text)

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
        self._last.append(text)
        self._whole.append(text)
        self._size += len(text)
        while self._size > ANSWER_LIMIT_CHARACTERS and len(self._whole) > 1:
            self._size -= len(self._whole.pop(0))
        for start in range(0, len(text), PIECE_CHARACTERS):
            self._ctx.emit(text[start : start + PIECE_CHARACTERS])

    def _used(self, used: Used) -> None:
        self._last.clear()  # what it says after a tool is a message of its own
        tool = used.tool or self._tools.get(used.call_id, "tool")
        self._tools[used.call_id] = tool
        self._ctx.emit({"tool": {"id": used.call_id, "kind": tool, "title": used.detail, "status": used.status}})
        self._ctx.progress(f"{tool}: {used.detail} ({used.status})")

    def _planned(self, planned: Planned) -> None:
        if not planned.steps:
            return
        done = sum(status == "completed" for _, status in planned.steps)
        now = next((step for step, status in planned.steps if status == "in_progress"), "")
        self._ctx.emit({"plan": [{"step": step, "status": status} for step, status in planned.steps]})
        self._ctx.progress(f"Plan: {done} of {len(planned.steps)} done{f', now: {now}' if now else ''}", done / len(planned.steps))
