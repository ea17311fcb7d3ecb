"""One run of another framework's agent under a delegation: what it is asked, what is heard of it, what it spends.

The adapters (`agents.pydantic_ai`, `agents.openai_agents`, `agents.langgraph`) translate their framework's events to it. Knows none of
them. Frameworks call back on threads of their own: whatever is said here is said on the loop of the delegation.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Hashable, Mapping
from contextvars import ContextVar
from typing import Any

from remit.agents.definition import Definition, Kind
from remit.agents.prompt import first_prompt, hand_in_prompt, repair_prompt
from remit.agents.spending import Answered, Spending
from remit.core.agents import AgentSpec, Answers
from remit.core.errors import Stopped, Unavailable
from remit.core.secret_looks import REDACTED
from remit.core.secrets import redacted_text
from remit.flow.context import Context
from remit.flow.plain import clean
from remit.models.client import Models

EMIT_CHARACTERS = 400
EMIT_SECONDS = 0.2
"""Words are streamed in pieces of so many characters or seconds, whichever is reached first: an event for each token is worth nothing."""
LOOK_SECONDS = 0.2
KEPT_CHARACTERS = 100_000
"""Of what it said last, for a return that is partial."""
_FIRST_TRY: ContextVar[tuple[str, Any] | None] = ContextVar("remit_first_try", default=None)
"""The session, and the messages of the run whose answer is being repaired: both runs are in one task."""


class Errand:
    """What an adapter holds while its framework's agent works."""

    def __init__(self, ctx: Context, spec: AgentSpec, parameters: Mapping[str, Any], models: Models) -> None:
        self.ctx = ctx
        self.parameters = parameters
        self._spec = spec
        self._loop = asyncio.get_running_loop()
        self._waiting: list[str] = []
        self._waits = 0
        """So many characters of it."""
        self._emitted_at = time.monotonic()
        self._said = ""
        self._has_handed_in = False
        self._spending = Spending(ctx, models.cost, models.is_priced)
        self._task = asyncio.current_task()
        self._looking: asyncio.TimerHandle | None = None
        self._is_over = False

    # ---- what it is asked

    @property
    def before(self) -> Any:
        """The messages of its first try, when it is asked again; None: there are none, it begins."""
        kept = _FIRST_TRY.get()
        return kept[1] if kept is not None and kept[0] == self.ctx.session_id and self.ctx.repair is not None else None

    def keep(self, messages: Any) -> None:
        """What was said in this run, should its answer have to be repaired."""
        if self._spec.answers is Answers.RETURN:
            _FIRST_TRY.set((self.ctx.session_id, messages))

    def prompt(self) -> str:
        """Its task in words; where it answers with a return also the form of it, at the end (S3.8)."""
        if self._spec.answers is Answers.VALUE:
            return _task(self.parameters)
        first = first_prompt(Definition(spec=self._spec, kind=Kind.MODEL), self.ctx, self.parameters)
        if self.ctx.repair is None:
            return first
        return repair_prompt(self.ctx, in_session=self.before is not None, first=first)

    def handing_in(self) -> str | None:
        """What it is told once, from the soft deadline on (S2.4)."""
        if not self.ctx.hand_in or self._has_handed_in:
            return None
        self._has_handed_in = True
        if self._spec.answers is Answers.RETURN:
            return hand_in_prompt(self.ctx, self.ctx.remaining)
        return f"Time is nearly up: {self.ctx.remaining:.0f} seconds are left. Call nothing more. Answer now with what there is."

    # ---- what is heard of it

    def hear(self, text: str) -> None:
        """Words of its answer, as they come."""
        if text:
            self._do(self._hear, text)

    def step(self, words: str) -> None:
        self._do(self._step, words)

    def _hear(self, text: str) -> None:
        self._waiting.append(text)
        self._waits += len(text)
        if self._waits >= EMIT_CHARACTERS or time.monotonic() - self._emitted_at >= EMIT_SECONDS:
            self.flush()

    def _step(self, words: str) -> None:
        self.flush()
        self.ctx.progress(words)

    def flush(self) -> None:
        """Say what waits to be said; before anything else is told, and at the end of a run."""
        text, self._waiting, self._waits, self._emitted_at = "".join(self._waiting), [], 0, time.monotonic()
        if text:
            self._said = (self._said + text)[-KEPT_CHARACTERS:]
            self.ctx.emit({"text": clean(text)})

    def close(self) -> None:
        """However the run ended: words that came before its deadline are kept, and counted."""
        self._is_over = True
        if self._looking is not None:
            self._looking.cancel()
        with contextlib.suppress(Stopped):
            self.flush()
            self._spending.break_off()

    # ---- what it spends

    def begins(self, request: Hashable, characters: int) -> None:
        """A question to a model, before it is asked. A run that has been ended asks nobody any more."""
        self._must_go_on()
        self._do(self._spending.begins, request, characters)

    def weigh(self, characters: int) -> None:
        """So much came of an answer: words, thoughts, calls."""
        self._do(self._spending.weigh, characters)

    def fails(self, request: Hashable) -> None:
        self._do(self._spending.fails, request)

    def answered(self, request: Hashable, one: Answered) -> None:
        self._do(self._spending.answered, request, one)

    def total(self, tokens: int, cost: float | None = None) -> None:
        """What the framework counted in all, between two requests or at the end: also of runs inside of its run."""
        self._do(self._spending.total, tokens)
        if cost is not None:
            self._do(self._spending.total_cost, cost)

    def follow(self, total: Callable[[], int]) -> None:
        """Look at the framework's total from time to time: runs inside of its run tell nothing of themselves."""
        with contextlib.suppress(Stopped):
            self._spending.total(total())
            self._looking = self._loop.call_later(LOOK_SECONDS, self.follow, total)

    # ---- what comes of it

    def partial(self, message: str, advice: str) -> dict[str, Any]:
        """A return: it was ended by a limit of its own framework's, and what it said so far is kept."""
        self.flush()
        ctx, said = self.ctx, self._said.strip()
        error = {"type": "execution", "message": clean(message)[:2000], "code": "UNKNOWN_ERROR", "recoverable": True}
        return {
            "status": "partial",
            "summary": f"{clean(f'{ctx.path[-1]} was ended before it had finished. {message}')[:380].rstrip('. ')}.",
            "artifacts": [],
            "errors": [{**error, "recommendation": advice}],
            "metadata": {
                "session_id": ctx.session_id,
                "agent_type": ctx.path[-1],
                "delegation_depth": ctx.depth,
                "delegation_path": list(ctx.path),
            },
            "next_steps": advice,
            "data": {"text": said} if said else None,
        }

    def _must_go_on(self) -> None:
        """On whatever thread: one that has been left behind cannot be ended, but is given nothing more to do."""
        if self._is_over or self.ctx.remaining <= 0 or (self._task is not None and self._task.cancelling()):
            raise Stopped(f"The delegation {self.ctx.session_id} has ended.", advice="Its agent must not go on.")

    def _do(self, act: Callable[..., None], *arguments: Any) -> None:
        """On the delegation's loop. Of a delegation that has ended nothing is said any more."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if here is self._loop:
            act(*arguments)
        else:
            self._loop.call_soon_threadsafe(_unless_stopped, act, *arguments)


def unreachable(error: BaseException) -> Unavailable | None:
    """An error of a provider's client: an answer that is an error of its API, or none at all. None: something else went wrong."""
    status = getattr(error, "status_code", None)
    if not isinstance(status, int) and _CLIENT_ERRORS.isdisjoint(kind.__name__ for kind in type(error).__mro__):
        return None
    words = _without_keys(clean(" ".join(str(error).split())))[:600] or type(error).__name__
    advice = "Look at its key and its name." if status in (400, 401, 403, 404) else "Try again later, or give it another model."
    return Unavailable(f"Its model did not answer: {words.rstrip('.')}.", code="AGENT_UNAVAILABLE", advice=advice)


_CLIENT_ERRORS = frozenset({"ModelAPIError", "APIError", "TransportError", "ConnectionError"})
"""Of libraries that share no class: pydantic-ai's, OpenAI's and Anthropic's, httpx's, Python's own; others descend from them."""
_KEYS = ("_KEY", "_TOKEN", "_SECRET")


def _without_keys(text: str) -> str:
    """Some servers say the key again that they did not like."""
    for name, value in os.environ.items():
        if name.endswith(_KEYS) and len(value) >= 8:
            text = text.replace(value, REDACTED)
    return redacted_text(text)


def _unless_stopped(act: Callable[..., None], *arguments: Any) -> None:
    with contextlib.suppress(Stopped):
        act(*arguments)


def _task(parameters: Mapping[str, Any]) -> str:
    given = "\n".join(f"- {name}: {value}" for name, value in parameters.items() if name != "task")
    return f"{parameters['task']}\n\nGiven with it:\n{given}" if given else str(parameters["task"])
