"""Agents of other frameworks as agents of remit: their declaration, one run under a delegation, and what it spends.

Used by `agents.pydantic_ai`, `agents.openai_agents` and `agents.langgraph`.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Annotated, Any, NamedTuple, TypedDict

from pydantic import Field

from remit.agents.definition import Definition, Kind
from remit.agents.function import FunctionAgent, agent
from remit.agents.prompt import first_prompt, hand_in_prompt, repair_prompt
from remit.agents.transcript import TextBuffer
from remit.core.agents import AgentSpec, Answers, WorkspaceKind
from remit.core.context import Context
from remit.core.errors import Stopped, Unavailable
from remit.core.jsonable import clean_text
from remit.core.policy import Effect, Fact
from remit.core.redaction import REDACTED, redact_text
from remit.models.client import Models
from remit.models.pricing import CHARACTERS_PER_TOKEN, MOST_TOLD, TokenUsage
from remit.system.settings_files import load_settings

# ---- spending

Costs = Callable[[str, TokenUsage], float | None]
"""What so many tokens of the model of that name cost; None: unknown."""


class CompletedRequest(NamedTuple):
    """A request to a model that has been answered."""

    used: TokenUsage
    """As its provider says."""
    model: str = ""
    """`provider:model`, as far as it is known."""
    cost: float | None = None
    """As its framework has it."""
    asked: int = 0
    """Characters of the question, and of the reply: for an estimate where the provider says nothing."""
    written: int = 0
    total: int | None = None
    """Tokens of the whole run, if the framework keeps such a total."""


class Spending:
    """Draws what a run spends from the delegation's budget. A budget that is passed stops the run."""

    def __init__(self, ctx: Context, costs: Costs, is_priced: Callable[[str], bool]) -> None:
        """`is_priced`: whether the project itself says what the model costs, which goes before what a framework has."""
        self._ctx = ctx
        self._costs, self._is_priced = costs, is_priced
        self._total, self._total_cost = 0, 0.0
        """What of the framework's own totals has been drawn."""
        self._streamed = 0
        """Characters of a reply that is not whole yet."""
        self._reported: set[str] = set()

    def stream(self, characters: int) -> None:
        """More of a reply came. It is drawn when it is whole, or at once when there is surely no room for it."""
        self._streamed += characters
        left = self._ctx.budget.tokens
        if left is not None and self._streamed > 2 * CHARACTERS_PER_TOKEN * left:
            self.break_off()

    def break_off(self) -> None:
        """A reply that will not be whole is paid for all the same."""
        characters, self._streamed = self._streamed, 0
        if characters:
            self._ctx.spend(tokens=estimated(0, characters).tokens)

    def answered(self, one: CompletedRequest) -> None:
        self._streamed = 0
        used = one.used if _is_sound(one.used) else estimated(one.asked, one.written)
        own = self._costs(one.model, used) if one.model and (one.cost is None or self._is_priced(one.model)) else None
        self._total_cost += one.cost or 0.0
        tokens = used.tokens if one.total is None or used.is_estimated else self._rest(one.total)
        cost = one.cost if own is None else own
        if cost is None and self._ctx.budget.cost is not None:
            self._report(f"The price of {one.model or 'its model'} is unknown: its money is not counted. Write it under [prices].")
        if used.is_estimated:
            self._report("Its model does not say how many tokens it used: they are estimated.")
        self._ctx.spend(tokens=tokens, cost=cost or 0.0)

    def total(self, tokens: int, cost: float | None = None) -> None:
        """The framework's own totals: what is more than its requests is of runs inside its run."""
        rest = self._rest(tokens)
        if rest:
            self._ctx.spend(tokens=rest)
            if self._ctx.budget.cost is not None:
                self._report("The money of agents inside it is counted only where its framework knows it.")
        if cost is not None and cost - self._total_cost > 1e-12:
            more, self._total_cost = cost - self._total_cost, cost
            self._ctx.spend(cost=more)

    def _rest(self, total: int) -> int:
        rest = max(0, total - self._total)
        self._total += rest
        return rest

    def _report(self, words: str) -> None:
        if words not in self._reported:
            self._reported.add(words)
            self._ctx.progress(words)


def estimated(read: int, written: int) -> TokenUsage:
    """By the characters, where a provider does not say."""
    output = max(1, written // CHARACTERS_PER_TOKEN)
    return TokenUsage(input_tokens=read // CHARACTERS_PER_TOKEN + 1, output_tokens=output, is_estimated=True)


def _is_sound(used: TokenUsage) -> bool:
    """Less than nothing would fill a budget up again; nothing at all is no answer either."""
    return used.input_tokens >= 0 and used.output_tokens >= 0 and 0 < used.tokens <= MOST_TOLD


# ---- one run

EMIT_CHARACTERS = 400
EMIT_SECONDS = 0.2
LOOK_SECONDS = 0.2
KEPT_CHARACTERS = 100_000
"""Of what it said last, for a return that is partial."""
_FIRST_TRY: ContextVar[tuple[str, Any] | None] = ContextVar("remit_first_try", default=None)
"""The session, and the messages of the run whose answer is being repaired: both runs are in one task."""


class FrameworkRun:
    """What an adapter holds while its framework's agent works."""

    def __init__(self, ctx: Context, spec: AgentSpec, parameters: Mapping[str, Any], models: Models) -> None:
        self.ctx = ctx
        self.parameters = parameters
        self._spec = spec
        self._loop = asyncio.get_running_loop()
        self._buffer = TextBuffer(self._emit, characters=EMIT_CHARACTERS, seconds=EMIT_SECONDS)
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
        """Its task in words; where it answers with a return also the form of it, at the end."""
        if self._spec.answers is Answers.VALUE:
            return _task(self.parameters)
        first = first_prompt(Definition(spec=self._spec, kind=Kind.MODEL), self.ctx, self.parameters)
        if self.ctx.repair is None:
            return first
        return repair_prompt(self.ctx, in_session=self.before is not None, first=first)

    def handing_in(self) -> str | None:
        """What it is told once, from the soft deadline on."""
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
            self._do(self._buffer.add, text)

    def step(self, words: str) -> None:
        self._do(self._step, words)

    def _step(self, words: str) -> None:
        self._buffer.flush()
        self.ctx.progress(words)

    def _emit(self, text: str) -> None:
        self._said = (self._said + text)[-KEPT_CHARACTERS:]
        self.ctx.emit({"text": clean_text(text)})

    def flush(self) -> None:
        """Emit the text that waits; before anything else is reported, and at the end of a run."""
        self._buffer.flush()

    def close(self) -> None:
        """However the run ended: words that came before its deadline are kept, and counted."""
        self._is_over = True
        if self._looking is not None:
            self._looking.cancel()
        with contextlib.suppress(Stopped):
            self.flush()
            self._spending.break_off()

    # ---- what it spends

    def begins(self) -> None:
        """Before a question to a model. A run that has been ended asks nobody any more."""
        if self._is_over or self.ctx.remaining <= 0 or (self._task is not None and self._task.cancelling()):
            raise Stopped(f"The delegation {self.ctx.session_id} has ended.", advice="Its agent must not go on.")

    def stream(self, characters: int) -> None:
        """So much more of a reply came."""
        self._do(self._spending.stream, characters)

    def answered(self, one: CompletedRequest) -> None:
        self._do(self._spending.answered, one)

    def total(self, tokens: int, cost: float | None = None) -> None:
        """What the framework counted in all, between two requests or at the end."""
        self._do(self._spending.total, tokens, cost)

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
        error = {"type": "execution", "message": clean_text(message)[:2000], "code": "UNKNOWN_ERROR", "recoverable": True}
        return {
            "status": "partial",
            "summary": f"{clean_text(f'{ctx.path[-1]} was ended before it had finished. {message}')[:380].rstrip('. ')}.",
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
    words = _without_keys(clean_text(" ".join(str(error).split())))[:600] or type(error).__name__
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
    return redact_text(text)


def _unless_stopped(act: Callable[..., None], *arguments: Any) -> None:
    with contextlib.suppress(Stopped):
        act(*arguments)


def _task(parameters: Mapping[str, Any]) -> str:
    given = "\n".join(f"- {name}: {value}" for name, value in parameters.items() if name != "task")
    return f"{parameters['task']}\n\nGiven with it:\n{given}" if given else str(parameters["task"])


# ---- declaration

Task = Annotated[str, Field(min_length=1, description="What is to be done, in words.")]
Run = Callable[[FrameworkRun], Awaitable[Any]]


class AgentOptions(TypedDict, total=False):
    """What `@agent(…)` takes of it, too."""

    description: str
    timeout: float | None
    idle: float | None
    answers: Answers | str
    """`value`: what it gives is the result (a structured output is `data`). `return`: it is told how to answer, read by the ladder, and
    asked once more where it is faulty."""
    requires_artifacts: bool
    retries: int
    slots: int | None
    workspace: WorkspaceKind | str
    effects: tuple[Effect | str, ...]
    acts_on: Mapping[str, Fact | str]


class FrameworkAgent(FunctionAgent):
    """Carried out with the models of the `Remit` it is registered with: by their prices its money is counted."""

    __slots__ = ("_models", "_run")

    def __init__(self, function: Callable[..., Any], spec: AgentSpec, run: Run, models: Models | None = None) -> None:
        super().__init__(function, spec)
        self._run = run
        self._models = models

    def with_models(self, models: Models) -> "FrameworkAgent":
        return FrameworkAgent(self.function, self.spec, self._run, models)

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        models = self._models or Models(load_settings(ctx.root, {}))
        await models.load_prices()
        run = FrameworkRun(ctx, self.spec, arguments, models)
        try:
            return await self._run(run)
        finally:
            run.close()


def framework_agent(name: str, kind: str, run: Run, declared: AgentOptions) -> FunctionAgent:
    """An agent that takes a task in words, and whatever else its caller names."""

    async def perform(ctx: Context, task: Task, **given: Any) -> Any:
        return await made.perform(ctx, {"task": task, **given})

    perform.__module__ = _declared_in()  # the directory takes of a file what was declared in it
    perform.__qualname__ = perform.__name__ = name
    options: dict[str, Any] = {**declared, "kind": kind}
    plain = agent(name, isolation="inline", **options)(perform)
    made = FrameworkAgent(plain.function, plain.spec, run)
    return made


def _declared_in() -> str:
    """The module that called the adapter."""
    frame: Any = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("remit.agents."):
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", "__main__")) if frame is not None else "__main__"
