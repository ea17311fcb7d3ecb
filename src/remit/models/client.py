"""`Models`: the language models of one project. Fails over, counts tokens and cost, never waits beyond the deadline.

`providers` resolves names, `connections` opens connections, `stream` asks one model.
"""

import asyncio
import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.core.errors import OutOfTime, RemitError, Unavailable
from remit.core.model_messages import RESTART, Answer, Choice, FailedAttempt, ModelCall, Question, SpendSink, UserMessage
from remit.core.settings import Settings
from remit.models.connections import Connection, Connections, missing
from remit.models.prices import TokenUsage, context_of, cost_of, load_prices, most_tokens, price_for, usage_of
from remit.models.providers import EXAMPLE, ModelRef, resolve_model
from remit.system.trust import ADVICE, CODE

if TYPE_CHECKING:
    from remit.models.stream import Fault, PartialReply


NO_TOOLS = "it cannot call tools: its chat template has none. Use another model; most newer ones can."
DEMOTED_SECONDS = 30.0
"""A model that failed is asked after the others for this long."""
RETRY_SECONDS = 20.0
"""Maximum wait for a busy model, if no other can be used."""
QUICK_RETRY_SECONDS = 2.0
"""The same if another can be used."""


class Models:
    def __init__(
        self,
        settings: Settings,
        root: Path | None = None,
        on_call: "Callable[[SpendSink, ModelCall], None] | None" = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`root`: of the project, for files of local models. `on_call`: called for each used model, with its outcome."""
        self._settings = settings
        self._clock = clock
        self._failed_at: dict[ModelRef, float] = {}
        self._connections = Connections(settings, root)
        self._on_call = on_call

    def is_configured(self) -> bool:
        """Whether a model is configured; nothing is tried."""
        return bool(self._settings.model)

    def cost(self, name: str, used: TokenUsage) -> float | None:
        """The cost of a model's tokens, also if another framework uses it. None: unknown."""
        return cost_of(self._settings, name, used)

    async def load_prices(self) -> None:
        """Call before the first `cost`: loads the price table off the loop, once."""
        await load_prices()

    def choice(self, own: str | Sequence[str] | None = None) -> Choice:
        """The configured models: `own` (an agent's), else the setting `model`. Raises `Unavailable` (TOOL_UNAVAILABLE) with the line to
        write, if there is none, one is unknown, the package is not installed, or none of them has its key."""
        names = tuple(
            dict.fromkeys(name.strip() for name in ([own] if isinstance(own, str) else own or self._settings.model) if name.strip())
        )
        if left_out := self._not_approved(names):
            raise Unavailable(f"The language model is set in {left_out}, which is not approved.", code=CODE, advice=ADVICE)
        if not names:
            raise Unavailable(
                "No language model is configured.",
                code="TOOL_UNAVAILABLE",
                advice=f"Write {EXAMPLE} in remit.toml, or set REMIT_MODEL; `remit models` lists what there is.",
            )
        meant = [resolve_model(self._settings, name) for name in names]
        if importlib.util.find_spec("pydantic_ai") is None:
            raise missing(meant[0])
        lacking = [one.lacks for one in meant]
        if all(lacking):
            variables = " or ".join(dict.fromkeys(one.key_variables[0] for one in meant))
            raise Unavailable(
                " ".join(filter(None, lacking)), code="TOOL_UNAVAILABLE", advice=f"Set {variables}; keys are never kept in files."
            )
        return Choice(names=names, source="" if own else self._settings.source_of("model"))

    def _not_approved(self, names: Sequence[str]) -> str:
        """The unapproved setting that would configure a model, or contains one of `names`."""
        endings = tuple(f"models.{name}]" for name in names) or (":model", "].model")
        return next((one for one in self._settings.not_approved if one.endswith(endings)), "")

    async def ask(self, sink: SpendSink, question: Question) -> Answer:
        """The reply of the first model that answers. Its cost is drawn from the sink, also for a partial reply. Raises `Unavailable` with
        each tried model and its fault, and `OutOfTime` when its time is over."""
        try:
            async with asyncio.timeout(max(0.0, sink.remaining)) as limit:
                return await self._ask(sink, question)
        except TimeoutError:
            if not limit.expired():
                raise
            raise OutOfTime("The time was over before the model had answered.", code="TIMEOUT", advice="Give it more time.") from None

    async def _ask(self, sink: SpendSink, question: Question) -> Answer:
        meant = [resolve_model(self._settings, name) for name in question.choice.names]
        meant.sort(key=lambda one: one in self._failed_at and self._clock() < self._failed_at[one] + DEMOTED_SECONDS)
        tried: list[FailedAttempt] = []
        all_lack = True
        for place, one in enumerate(meant):
            try:
                connection = await self._connections.to(one, sink)
            except Unavailable as error:
                tried.append(FailedAttempt(model=one.name, fault=f"{error.message} {error.advice}".strip()))
                all_lack = all_lack and error.code == "TOOL_UNAVAILABLE"
                continue
            if question.tools and not connection.calls_tools:
                tried.append(FailedAttempt(model=one.name, fault=NO_TOOLS))
                continue
            all_lack = False
            attempt = _Attempt(self._settings, sink, question, connection, is_last=place == len(meant) - 1)
            asked = await self._ask_and_report(sink, one, attempt, tried)
            if asked is not None:
                return asked
        reasons = " ".join(f"{one.model}: {one.fault}" for one in tried)
        what = "The model did not answer." if len(tried) == 1 else f"None of {len(tried)} models answered."
        code = "TOOL_UNAVAILABLE" if all_lack else "AGENT_UNAVAILABLE"
        raise Unavailable(f"{what} {reasons}", code=code, advice="`remit doctor` says which models answer.")

    async def _ask_and_report(self, sink: SpendSink, one: ModelRef, attempt: "_Attempt", tried: list[FailedAttempt]) -> Answer | None:
        begun, asked, error = time.monotonic(), None, "AGENT_UNAVAILABLE"
        try:
            asked = await attempt.made(tried)
            if asked is not None:
                self._failed_at.pop(one, None)
            elif attempt.counts:
                self._failed_at[one] = self._clock()
            return asked
        except BaseException as raised:
            error = raised.code if isinstance(raised, RemitError) else type(raised).__name__
            raise
        finally:
            used = None if asked is None else (asked.input_tokens, asked.output_tokens)
            if self._on_call is not None:
                self._on_call(sink, ModelCall(one.provider, one.model, time.monotonic() - begun, used, "" if asked is not None else error))

    async def write(
        self,
        sink: SpendSink,
        prompt: str,
        *,
        instructions: str = "",
        choice: Choice | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Answer:
        """One question, one text answer."""
        question = Question(
            choice=choice or self.choice(), instructions=instructions, messages=(UserMessage(text=prompt),), output_schema=schema
        )
        return await self.ask(sink, question)

    def context_tokens(self, choice: Choice) -> int | None:
        """The smallest known context size of all. None: unknown. The first call loads the model table: use it off the loop."""
        known = [context_of(resolve_model(self._settings, name)) for name in choice.names]
        return min(filter(None, known), default=None)

    async def close(self) -> None:
        """Close connections and the processes of local models."""
        await self._connections.close()


class _Attempt:
    """One request to a model, repeated once if that helps: it is busy, or refuses the schema."""

    def __init__(self, settings: Settings, sink: SpendSink, question: Question, connection: Connection, *, is_last: bool) -> None:
        self._settings, self._sink, self._connection = settings, sink, connection
        self._is_last = is_last
        self.counts = False
        """Whether it failed for a reason other than the question."""
        self._question = question
        self._price = price_for(settings, connection.meant)

    async def made(self, tried: list[FailedAttempt]) -> Answer | None:
        """The answer; None if it failed, which is then on the list."""
        structured, again = True, False
        while True:
            outcome = await self._ask_once(tried, structured=structured)
            if isinstance(outcome, Answer):
                return outcome
            has_extras = self._question.output_schema is not None or self._question.temperature is not None
            if structured and has_extras and outcome.is_rejected:
                structured = False  # the schema, which the prompt repeats, or the temperature may be refused
                continue
            if not again and outcome.retry_after is not None and self._can_wait(outcome.retry_after):
                again = True
                self._sink.progress(f"{self._connection.meant.name}: {outcome.words} Asked again in {outcome.retry_after:g} s.")
                await asyncio.sleep(outcome.retry_after)
                continue
            self.counts = outcome.counts
            tried.append(FailedAttempt(model=self._connection.meant.name, fault=outcome.words))
            return None

    async def _ask_once(self, tried: Sequence[FailedAttempt], *, structured: bool) -> "Answer | Fault":
        from remit.models.stream import PartialReply, answer, fault_of

        heard = PartialReply()
        most = most_tokens(self._sink, self._question, self._connection.meant.max_tokens, self._price)
        try:
            reply, ended, used = await answer(self._connection, self._question, heard, max_tokens=most, structured=structured)
        except Exception as error:
            if heard.is_forwarding:
                self._count(heard)
                raise
            self._count(heard)
            if heard.words and self._question.hear is not None:
                self._question.hear(RESTART)
            return fault_of(error, self._connection)
        except BaseException:
            with suppress(RemitError):  # its delegation may have ended, which must not hide the cancellation
                self._count(heard)
            raise
        cost = self._draw(used)
        return Answer(
            reply=reply,
            ended=ended,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            cost=cost,
            tried=tuple(tried),
            details={"tokens": "estimated"} if used.is_estimated else {},
        )

    def _can_wait(self, seconds: float) -> bool:
        most = RETRY_SECONDS if self._is_last else QUICK_RETRY_SECONDS
        return seconds <= min(most, self._sink.remaining / 2)

    def _count(self, heard: "PartialReply") -> None:
        """A partial reply is paid for as well."""
        if heard.response is not None and (heard.characters or heard.response.usage.input_tokens):
            self._draw(usage_of(heard.response.usage, self._question, characters=heard.characters, is_whole=False))

    def _draw(self, used: TokenUsage) -> float | None:
        cost = cost_of(self._settings, self._connection.meant, used)
        self._sink.spend(tokens=used.tokens, cost=cost or 0.0)
        return cost
