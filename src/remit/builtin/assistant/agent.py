"""The assistant as an agent of the directory: `assistant(message, conversation?)`, with `results.read` and `results.summarise` beside it.

Each message is one delegation, so that recording, deadline, cancelling the tree and budget are the engine's, as for everybody. Its own
delegations are its children.
"""

import importlib
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from remit.agents.function import FunctionAgent, agent
from remit.builtin import TARGETS
from remit.builtin.assistant.conversations import Conversation, Conversations
from remit.core.agents import ASSISTANT, AgentSpec, is_role
from remit.core.delegation import ROOT_CALLER
from remit.core.errors import Failed, Misused, Refused, Unavailable
from remit.core.ids import is_session_id
from remit.core.jsonable import clean_text
from remit.core.record import Record
from remit.core.settings import Settings
from remit.models.client import Models
from remit.models.messages import Choice
from remit.models.questions import TextModel, summarize
from remit.runtime.context import Context
from remit.runtime.tool.delegate_results import READ, SUMMARISE, DelegateResult, result_of_record, text_of
from remit.runtime.tool.delegate_tool import Delegator
from remit.system.threads import off_loop

# ---- results
# Only of what the caller delegated, and what those delegated in turn; for the assistant also of what its conversation delegated before.

TARGET = "results"
MOST_CHARACTERS = 100_000
"""Of one range."""
DEFAULT_CHARACTERS = 20_000
SUMMARY_CHARACTERS = 3_000
LEAST_SUMMARY = 300
Part = Literal["data", "output", "artifacts", "all"]


class Records(Protocol):
    """Where delegations are looked up: an open `Remit`."""

    async def describe(self, session_id: str) -> Record: ...


def results_reader(records: Records, turns: Callable[[str], frozenset[str]]) -> FunctionAgent:
    """`turns`: all delegations of the assistant in the conversation that is answered by this one of them; of any other none."""

    @agent(READ, description="The whole result of an earlier delegation, by ranges of characters.", workspace="none", effects=("read",))
    async def read(
        ctx: Context,
        task_id: str,
        offset: Annotated[int, Field(ge=0)] = 0,
        limit: Annotated[int, Field(ge=1, le=MOST_CHARACTERS)] = DEFAULT_CHARACTERS,
        part: Part = "data",
    ) -> dict[str, Any]:
        return ranged(await _own_result(records, turns, ctx, task_id), part, offset, limit)

    return read


def results_summariser(records: Records, turns: Callable[[str], frozenset[str]], models: TextModel) -> FunctionAgent:
    """Beside `results_reader`: for results that are too large to be read range by range."""

    @agent(SUMMARISE, description="A large result of an earlier delegation in few words, by a language model.", workspace="none")
    async def summarise(
        ctx: Context,
        task_id: str,
        characters: Annotated[int, Field(ge=LEAST_SUMMARY, le=DEFAULT_CHARACTERS)] = SUMMARY_CHARACTERS,
        part: Part = "data",
        about: str = "",
    ) -> dict[str, Any]:
        text = _text_of_part(await _own_result(records, turns, ctx, task_id), part)
        short = await summarize(models, ctx, text, characters=characters, about=about)
        return {"taskId": task_id, "part": part, "text": short, "total": len(text), "isWhole": short == text}

    return summarise


async def _own_result(records: Records, turns: Callable[[str], frozenset[str]], ctx: Context, task_id: str) -> DelegateResult:
    """Of a delegation that the caller may look into, and that has ended."""
    record = await _known(records, task_id)
    callers = await _callers(records, ctx.as_dict()["parent_id"])
    if not await _is_below(records, record, callers.union(*map(turns, callers))):
        raise _not_yours(task_id)
    if record.result is None:
        raise Failed(f"{task_id} has not ended: it is {record.state}.", code="INVALID_OPERATION", advice="Read it when it has.")
    return result_of_record(record)


def ranged(result: DelegateResult, part: str, offset: int, limit: int) -> dict[str, Any]:
    text = _text_of_part(result, part)
    end = min(len(text), offset + limit)
    return {
        "taskId": result.task_id,
        "part": part,
        "text": text[offset:end],
        "offset": offset,
        "total": len(text),
        "next": end if end < len(text) else None,
    }


def _text_of_part(result: DelegateResult, part: str) -> str:
    match part:
        case "data":
            return text_of(result.data)
        case "output":
            return text_of(result.output)
        case "artifacts":
            return text_of([artifact.to_dict() for artifact in result.artifacts])
        case _:
            return text_of(result.to_dict())


async def _known(records: Records, task_id: str) -> Record:
    """One that is unknown is refused in the same words as a stranger's: nobody is told which ids there are."""
    if not is_session_id(task_id):
        raise Refused(
            f"{task_id!r:.60} is no taskId: they look like sess_1760000000_abc123.",
            code="INVALID_PARAMETERS",
            advice="Take one from a result.",
        )
    try:
        return await records.describe(task_id)
    except Misused as error:
        if error.code == "INVALID_TARGET":
            raise _not_yours(task_id) from None
        raise


async def _callers(records: Records, caller: str | None) -> set[str]:
    """Whoever asks, and those whose work it goes on with (`resume`): what they delegated is known to it."""
    found: set[str] = set()
    while caller is not None and caller not in found:
        found.add(caller)
        try:
            caller = (await records.describe(caller)).resumes
        except Misused:
            break
    return found


async def _is_below(records: Records, record: Record, callers: Collection[str]) -> bool:
    """Whether one of them delegated it, or had it delegated. Callers are kept as long as what they delegated; depth is limited."""
    above = record.parent_id
    while above is not None:
        if above in callers:
            return True
        try:
            above = (await records.describe(above)).parent_id
        except Misused:
            return False
    return False


def _not_yours(task_id: str) -> Refused:
    return Refused(
        f"{task_id} is no delegation of yours: neither you nor anybody you delegated to made it.",
        code="POLICY_DENIED",
        advice="Read results of delegations that were made here, by the taskId in their results.",
    )


# ---- the assistant

DESCRIPTION = "A language model that answers in words and has work done by delegating; it keeps the conversation."
INTERNAL = frozenset({"atomic-task-numberer", "status-sync-manager", "git-workflow-manager"})
"""Roles that do the board's own bookkeeping: commands call them, nobody else."""


class AssistantHost(Delegator, Protocol):
    """An open `Remit`."""

    @property
    def root(self) -> Path: ...
    async def children(self, session_id: str) -> list[Record]: ...
    async def tree(self, session_id: str) -> list[Record]: ...


class Assistant:
    """Of one Remit: knows which conversations are being answered."""

    def __init__(self, settings: Settings, models: Models, host: AssistantHost | None) -> None:
        self._settings = settings
        self._models = models
        self._host = host
        self._open: dict[str, Conversation] = {}
        """Those that are being answered, by the delegation that answers."""

    def agents(self) -> Iterable[FunctionAgent]:
        @agent(ASSISTANT, description=DESCRIPTION, workspace="none")
        async def assistant(ctx: Context, message: str, conversation: str | None = None) -> dict[str, Any]:
            return await self._answer(ctx, message, conversation, assistant.spec)

        return [assistant]

    def readers(self) -> Iterable[FunctionAgent]:
        records = _Absent() if self._host is None else self._host
        return [results_reader(records, self.turns), results_summariser(records, self.turns, self._models)]

    def turns(self, session_id: str) -> frozenset[str]:
        """All delegations that answered in the conversation which is being answered by this one; of any other none."""
        conversation = self._open.get(session_id)
        return frozenset() if conversation is None else frozenset(turn.session_id for turn in conversation.turns)

    async def _answer(self, ctx: Context, message: str, named: str | None, spec: AgentSpec) -> dict[str, Any]:
        if self._host is None:
            raise Unavailable("The assistant can be listed here, not asked.", advice="Open the project.")
        choice = self._models.choice()
        await off_loop(_load, self._settings.builtin_agents)
        from remit.builtin.assistant.message import MessageRun, Tools
        from remit.runtime.tool.delegate_tool import DelegateTool

        if not message.strip():
            raise Misused("The message is empty.", advice="Say what is to be done.")
        tools = Tools(
            settings=self._settings,
            models=self._models,
            choice=choice,
            tool=DelegateTool(self._host, among=is_offered),
            records=self._host,
            window=await off_loop(self._models.context_tokens, choice),
            now=self._host.clock.wall,
        )
        kept = Conversations(ctx.root, await self._holder(ctx.session_id))
        conversation = await off_loop(_opened, kept, message, named, choice)  # a long one takes a while to read
        with conversation.writing():
            for notice in conversation.notices:
                ctx.progress(notice)
            ctx.emit({"conversation": conversation.conversation_id})
            self._open[ctx.session_id] = conversation
            try:
                return await MessageRun(tools, ctx, spec, conversation, clean_text(message)).run()
            finally:
                self._open.pop(ctx.session_id, None)
                if not conversation.lines:  # refused before anything was said
                    conversation.path.unlink(missing_ok=True)

    async def _holder(self, session_id: str) -> str:
        """On whose behalf it is asked: who came in by a door goes on with conversations of its own only."""
        caller_info = (await self._host.describe(session_id)).caller_info if self._host is not None else None
        return "" if caller_info is None or caller_info.principal == ROOT_CALLER else caller_info.principal


def _opened(kept: Conversations, message: str, named: str | None, choice: Choice) -> Conversation:
    is_new = named is None or not named.strip()
    return kept.new(message, model=", ".join(choice.names)) if is_new else kept.open(named or "")


def _load(targets: Sequence[str]) -> None:
    """What would be loaded on the loop while it is asked: on a slow disk that takes longer than an agent may hold the loop."""
    for module in ("remit.builtin.assistant.message", *(f"remit.builtin.{one}" for one in targets if one in TARGETS)):
        importlib.import_module(module)


class _Absent:
    async def describe(self, session_id: str) -> Record:
        raise Unavailable("Nothing can be read here.", advice="Open the project.")


def is_offered(spec: AgentSpec) -> bool:
    """All but itself, and those that do the board's bookkeeping."""
    return spec.name != ASSISTANT and not (is_role(spec) and spec.name in INTERNAL)
