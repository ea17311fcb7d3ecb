"""A language model as an agent, created by `agents.executors` from a definition of kind `model`.

Builds the prompts and finds the answer; `conversation` runs the loop. It acts only by delegating to the agents in its definition. A repair,
and a run after a crash, continue the same conversation, which is kept in the checkpoint."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from remit.agents.definition import Definition, checked_task
from remit.agents.model.context_window import ASKED_TOKENS, characters_in, fitted, from_plain, is_struck, room_in, to_plain, tokens_of_text
from remit.agents.model.conversation import ConversationEnd, ConversationOptions, offer_of, pending_calls, talk
from remit.agents.prompt import closing_prompt, going_on_prompt, model_prompt, repair_prompt, system_prompt
from remit.agents.transcript import TextBuffer, Words, has_return
from remit.core.agents import BUILTIN_TARGETS, AgentSpec, Answers
from remit.core.context import Context
from remit.core.delegate_requests import json_text
from remit.core.delegate_results import READ, SUMMARISE, shorten_result
from remit.core.errors import Failed, OutOfTime
from remit.core.jsonable import clean_text
from remit.core.model_messages import RESTART, Answer, Choice, EndReason, Message, Reply, ToolResult, UserMessage, repaired
from remit.models.client import Models
from remit.runtime.output_schema import schema_faults
from remit.runtime.receive import read_answer
from remit.runtime.return_format import return_schema, value_repair
from remit.runtime.tool.delegate_tool import Agents, DelegateTool
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.agents.executors import ExecutorDeps

# ---- answers

_FENCED = re.compile(r"^(`{3,}|~{3,})(?:json)?[ \t]*\n(.*?)\n[ \t]*\1", re.DOTALL | re.MULTILINE | re.IGNORECASE)
_SEARCHED_CHARACTERS = 400_000


def value_in(answer: str) -> Any:
    """The JSON in the answer or in its last block; the answer itself without any."""
    answer = answer.strip()
    for text in (answer, *(found[2] for found in reversed(list(_FENCED.finditer(answer[-_SEARCHED_CHARACTERS:]))))):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            continue
    candidate = read_answer(answer).candidate
    return answer if candidate is None else candidate


# ---- reachable agents

_RESULTS = (READ, SUMMARISE)


def reachable(definition: Definition, agents: Agents) -> Callable[[AgentSpec], bool]:
    """By its `tools`: names of agents and targets, `target.operation`, `target.*`; None: the built-in ones."""
    lists = [BUILTIN_TARGETS if definition.tools is None else definition.tools]
    lists += [] if definition.within is None else [definition.within]
    entries = [[entry.removesuffix(".*") for entry in one] for one in lists]

    def is_reached(name: str) -> bool:
        return all(any(agents.includes(entry, name) for entry in one) for one in entries)

    return lambda spec: spec.name != definition.name and (spec.name in _RESULTS or is_reached(spec.name))


# ---- progress

PIECE_CHARACTERS = 800
PIECE_SECONDS = 0.5
_FAULT_CHARACTERS = 300


class ProgressReporter:
    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._words = Words(ctx)
        self._buffer = TextBuffer(lambda text: self._words.say(text), characters=PIECE_CHARACTERS, seconds=PIECE_SECONDS)
        self._known: set[str] = set()

    def hear(self, text: str) -> None:
        if text == RESTART:
            self._buffer.clear()
            self._words = Words(self._ctx)
        else:
            self._buffer.add(text)

    def end(self, message: Message) -> None:
        """A message is complete. A return at the end is not streamed: the caller gets it as the return."""
        if isinstance(message, Reply):
            self._buffer.flush()
            if message.calls:
                self._words.end_message()
            else:
                self._words.end_turn()

    def asked(self, asked: Answer) -> None:
        by = asked.reply.model
        for one in asked.tried:
            self._tell_once(self._ctx.progress, f"{one.model} did not answer ({clean_text(one.fault)[:_FAULT_CHARACTERS]}); asked {by}.")
        if asked.cost is None:
            self._tell_once(self._ctx.warn, f'The price of {by} is unknown: what it cost is not counted. Write it under [prices."{by}"].')

    def _tell_once(self, tell: Callable[[str], None], words: str) -> None:
        if words not in self._known:
            self._known.add(words)
            tell(words)


# ---- the agent

REPAIR_SECONDS = 2.0
"""With less time left at the soft deadline there is no repair."""
_KIND = "model"


class ModelAgent:
    __slots__ = ("definition", "delegator", "models", "spec")

    def __init__(self, definition: Definition, deps: "ExecutorDeps") -> None:
        self.spec: AgentSpec = definition.spec
        self.definition = definition
        self.models: Models = deps.models
        self.delegator = deps.delegator

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        return checked_task(self.spec.name, parameters)

    async def perform(self, ctx: Context, arguments: Mapping[str, Any]) -> Any:
        run = _Run(self, ctx, self.models.choice(self.definition.models or None))
        answer = await run.answer(arguments)
        if self.spec.answers is Answers.VALUE:
            return answer if self.spec.output_schema is None else await run.value(answer)
        # Failures from the soft deadline on count as the deadline: the partial work is returned.
        is_last = ctx.hand_in and (ctx.repair is not None or ctx.remaining < REPAIR_SECONDS)
        if is_last and not await off_loop(has_return, answer):
            raise OutOfTime(f"{self.spec.name} gave no valid return when it was asked for one.", advice="Give it a longer timeout.")
        return answer


@dataclass(slots=True)
class _Run:
    """One call of the agent, or one repair."""

    agent: ModelAgent
    ctx: Context
    choice: Choice

    async def answer(self, arguments: Mapping[str, Any]) -> str:
        tools, delegator = self.agent.definition.tools, self.agent.delegator
        tool = None if tools == () else DelegateTool(delegator, reachable(self.agent.definition, delegator.directory))
        messages = self._first_messages(arguments, tool)
        last = messages[-1]
        if isinstance(last, Reply) and not last.calls:
            return last.text  # it had answered, but was interrupted before that was recorded
        if self.ctx.repair is not None and not any(fault.startswith("artifacts:") for fault in self.ctx.repair.faults):
            tool = None  # only its form is wrong; missing files would have to be written
        return (await self._talk(messages, tool)).text

    def _first_messages(self, arguments: Mapping[str, Any], tool: DelegateTool | None) -> list[Message]:
        """The conversation so far, followed by the current request."""
        ctx = self.ctx
        agents = sorted(spec.name for spec in tool.catalogue.specs if spec.name not in _RESULTS) if tool is not None else []
        first = model_prompt(self.agent.definition, ctx, arguments, agents)
        kept, is_same = self._saved_messages()
        if ctx.repair is not None:
            again = repair_prompt(ctx, in_session=bool(kept), first=first, output_schema=self.agent.spec.output_schema)
            return repaired([*kept, UserMessage(text=again)])
        if not kept:
            return [UserMessage(text=first)]
        if not is_same:
            is_told = any(isinstance(one, UserMessage) and str(arguments.get("task", "")) in one.text for one in kept)
            return repaired([*kept, UserMessage(text=going_on_prompt(ctx, self.agent.definition) if is_told else first)])
        pending = pending_calls(kept)
        # unknown whether they were executed: not repeated automatically
        if pending and (not self.agent.spec.resumable or any(map(is_struck, pending))):
            return repaired([*kept, UserMessage(text=going_on_prompt(ctx, self.agent.definition))])
        return kept

    def _saved_messages(self) -> tuple[list[Message], bool]:
        """The conversation of the earlier run, and whether it belongs to this delegation."""
        saved = self.ctx.saved
        if not isinstance(saved, Mapping) or saved.get("kind") != _KIND:
            return [], False
        return from_plain(saved.get("messages")) or [], saved.get("session_id") == self.ctx.session_id

    async def _talk(self, messages: list[Message], tool: DelegateTool | None, schema: Mapping[str, Any] | None = None) -> ConversationEnd:
        ctx, telling = self.ctx, ProgressReporter(self.ctx)
        said = list(messages)
        beside = await off_loop(self._beside, tool)

        async def keep(message: Message) -> None:
            telling.end(message)
            said.append(message)
            if isinstance(message, ToolResult) and pending_calls(said):
                return  # stored once for all results of a turn: until then their delegations have them
            kept = to_plain(fitted(said, ASKED_TOKENS, characters_in(ASKED_TOKENS)))
            await ctx.checkpoint({"kind": _KIND, "session_id": ctx.session_id, "messages": kept})

        async def within_limits(all_of_it: list[Message]) -> list[Message]:
            room = self._room(beside)
            return await off_loop(fitted, all_of_it, room, characters_in(room))

        talked = await talk(
            ConversationOptions(
                models=self.agent.models,
                choice=self.choice,
                ctx=ctx,
                instructions=system_prompt(self.agent.definition),
                temperature=self.agent.definition.temperature,
                messages=messages,
                tool=tool,
                requests=self.agent.definition.requests or self.agent.delegator.settings.model_requests,
                hear=telling.hear,
                keep=keep,
                shown=lambda result: shorten_result(result, characters_in(self._room(beside))),
                output_schema=schema or self._schema(),
                before=within_limits,
                closing=lambda why: closing_prompt(ctx, self.agent.definition, why),
                told=telling.asked,
            )
        )
        if talked.ended is EndReason.REFUSED and not talked.text.strip():
            raise Failed("The provider of the model refused to answer this.", advice="Say it in other words, or give it another model.")
        return talked

    def _beside(self, tool: DelegateTool | None) -> int:
        """Tokens of everything beside the conversation in each request. Off the loop, because it loads the model table."""
        self.agent.models.context_tokens(self.choice)
        offer = "" if tool is None else json_text(dict(offer_of(tool).schema)) + offer_of(tool).description
        return tokens_of_text(system_prompt(self.agent.definition)) + tokens_of_text(offer)

    def _room(self, beside: int) -> int:
        """Computed each time: a local model's context is known only once it runs."""
        return room_in(self.agent.models.context_tokens(self.choice), beside)

    def _schema(self) -> Mapping[str, Any] | None:
        """The schema for providers that can enforce it. None if it would not allow undeclared data."""
        ctx, declared = self.ctx, self.agent.spec.output_schema
        if self.agent.spec.answers is Answers.VALUE:
            return declared
        if declared is None and (ctx.repair is None or (read_answer(ctx.repair.original).candidate or {}).get("data") is not None):
            return None
        return return_schema(ctx.session_id, ctx.path[-1], ctx.depth, ctx.path, declared)

    async def value(self, answer: str) -> Any:
        """For an agent whose answer is the declared result itself: its JSON, requested once more if invalid."""
        schema = self.agent.spec.output_schema
        assert schema is not None
        value, faults = await off_loop(_judge_value, answer, schema)
        if not faults or self.ctx.remaining < REPAIR_SECONDS:
            return value
        self.ctx.progress(f"Its answer was not valid ({'; '.join(faults)[:300]}); asking once more.")
        kept, _ = self._saved_messages()
        talked = await self._talk([*kept, UserMessage(text=value_repair(faults, schema))], None, schema)
        return (await off_loop(_judge_value, talked.text, schema))[0]


def _judge_value(answer: str, schema: Mapping[str, Any]) -> tuple[Any, list[str]]:
    value = value_in(answer)
    return value, schema_faults(value, schema)
