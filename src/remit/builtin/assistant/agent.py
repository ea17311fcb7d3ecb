"""The assistant as an agent of the directory: `assistant(message, conversation?)`, with `results.read` and `results.summarise`.

Each message is one delegation, so that the engine handles recording, deadline, cancellation and budget as for any agent. Its own
delegations are its children."""

import contextlib
import importlib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from remit.agents.function import FunctionAgent, agent
from remit.builtin.assistant.conversations import Conversation, Conversations
from remit.core.agents import ASSISTANT, BUILTIN_TARGETS, AgentSpec, is_role
from remit.core.context import Context
from remit.core.delegate_results import READ, SUMMARISE, result_of_record, text_of
from remit.core.delegation import ROOT_CALLER
from remit.core.errors import Failed, Misused, Refused, Unavailable
from remit.core.ids import is_session_id
from remit.core.jsonable import clean_text
from remit.core.record import Record
from remit.core.settings import Settings
from remit.models.client import Models
from remit.models.questions import summarize
from remit.runtime.tool.delegate_tool import Delegator
from remit.system.threads import off_loop
from remit.system.trust import ProjectTrust

# ---- results

MAX_CHARACTERS = 100_000
"""Maximum length of one range."""
DEFAULT_CHARACTERS = 20_000
SUMMARY_CHARACTERS = 3_000
MIN_SUMMARY = 300
Part = Literal["data", "output", "artifacts", "all"]


def _not_yours(task_id: str) -> Refused:
    return Refused(
        f"{task_id} is not one of your delegations, nor below one.",
        code="POLICY_DENIED",
        advice="Read results of delegations that were made here, by the taskId in their results.",
    )


# ---- the assistant

DESCRIPTION = "A language model that answers in words and has work done by delegating; it keeps the conversation."
INTERNAL = frozenset({"atomic-task-numberer"})
"""Roles for the board's own bookkeeping: only commands call them."""


class AssistantHost(Delegator, Protocol):
    """An open `Remit`."""

    @property
    def root(self) -> Path: ...
    @property
    def trust(self) -> ProjectTrust: ...
    async def note_conversation(self, session_id: str, earlier: Sequence[str]) -> None: ...


class Assistant:
    """The assistant of one `Remit`; it tracks conversations that are being answered."""

    def __init__(self, settings: Settings, models: Models, host: AssistantHost | None) -> None:
        self._settings = settings
        self._models = models
        self._host = host
        self._open: dict[str, Conversation] = {}
        """Conversations in progress, by the answering delegation."""

    def agents(self) -> Iterable[FunctionAgent]:
        @agent(ASSISTANT, description=DESCRIPTION, workspace="none")
        async def assistant(ctx: Context, message: str, conversation: str | None = None) -> dict[str, Any]:
            return await self._answer(ctx, message, conversation, assistant.spec)

        return [assistant]

    async def _describe(self, session_id: str) -> Record:
        return await self._need_host().describe(session_id)

    def _need_host(self) -> AssistantHost:
        if self._host is None:
            raise Unavailable("The assistant cannot be called here, only listed.", advice="Open the project.")
        return self._host

    def _turns(self, session_id: str) -> frozenset[str]:
        """All delegations that answered in the conversation of this one; empty if it answers in none."""
        conversation = self._open.get(session_id)
        return frozenset() if conversation is None else frozenset(turn.session_id for turn in conversation.turns)

    async def _answer(self, ctx: Context, message: str, named: str | None, spec: AgentSpec) -> dict[str, Any]:
        host = self._need_host()
        choice = self._models.choice()
        await off_loop(_load, self._settings.builtin_agents)
        from remit.builtin.assistant.message import MessageRun, Tools
        from remit.runtime.tool.delegate_tool import DelegateTool

        if not message.strip():
            raise Misused("The message is empty.", advice="Say what to do.")
        tools = Tools(
            settings=self._settings,
            models=self._models,
            choice=choice,
            tool=DelegateTool(host, among=is_offered),
            records=host,
            window=await off_loop(self._models.context_tokens, choice),
            now=host.clock.wall,
            allows=host.trust.allows_content,
        )
        kept = Conversations(ctx.root, await self._holder(ctx.session_id))
        if named is None or not named.strip():
            conversation = await off_loop(lambda: kept.new(message, model=", ".join(choice.names)))
        else:
            conversation = await off_loop(kept.open, named)  # a long one takes a while to read
        with conversation.writing():
            for notice in conversation.notices:
                ctx.progress(notice)
            ctx.emit({"conversation": conversation.conversation_id})
            self._open[ctx.session_id] = conversation
            await host.note_conversation(ctx.session_id, [turn.session_id for turn in conversation.turns])
            try:
                return await MessageRun(tools, ctx, spec, conversation, clean_text(message)).run()
            finally:
                self._open.pop(ctx.session_id, None)
                if not conversation.lines:  # refused before any message
                    conversation.path.unlink(missing_ok=True)

    async def _holder(self, session_id: str) -> str:
        """The authenticated principal; empty for the owner of the project."""
        caller_info = (await self._describe(session_id)).caller_info
        return "" if caller_info is None or caller_info.principal == ROOT_CALLER else caller_info.principal

    # ---- results

    def readers(self) -> Iterable[FunctionAgent]:
        """`results.read` and `results.summarise`.

        A caller reads the results of its own delegations and their children; the assistant also those of its conversation."""

        @agent(READ, description="The whole result of an earlier delegation, by ranges of characters.", workspace="none", effects=("read",))
        async def read(
            ctx: Context,
            task_id: str,
            offset: Annotated[int, Field(ge=0)] = 0,
            limit: Annotated[int, Field(ge=1, le=MAX_CHARACTERS)] = DEFAULT_CHARACTERS,
            part: Part = "data",
        ) -> dict[str, Any]:
            text = await self._text(ctx, task_id, part)
            end = min(len(text), offset + limit)
            found = {"taskId": task_id, "part": part, "text": text[offset:end], "offset": offset, "total": len(text)}
            return {**found, "next": end if end < len(text) else None}

        @agent(SUMMARISE, description="A large result of an earlier delegation in few words, by a language model.", workspace="none")
        async def summarise(
            ctx: Context,
            task_id: str,
            characters: Annotated[int, Field(ge=MIN_SUMMARY, le=DEFAULT_CHARACTERS)] = SUMMARY_CHARACTERS,
            part: Part = "data",
            about: str = "",
        ) -> dict[str, Any]:
            text = await self._text(ctx, task_id, part)
            short = await summarize(self._models, ctx, text, characters=characters, about=about)
            return {"taskId": task_id, "part": part, "text": short, "total": len(text), "isWhole": short == text}

        return [read, summarise]

    async def _text(self, ctx: Context, task_id: str, part: Part) -> str:
        """A part of the result of a finished delegation that the caller may read."""
        record = await self._find(task_id)
        callers = await self._callers(ctx.as_dict()["parent_id"])
        if not await self._is_below(record, callers.union(*map(self._turns, callers))):
            raise _not_yours(task_id)
        if record.result is None:
            raise Failed(f"{task_id} has not ended: it is {record.state}.", code="INVALID_OPERATION", advice="Read it after it has ended.")
        result = result_of_record(record)
        parts = {"data": result.data, "output": result.output, "artifacts": [artifact.to_dict() for artifact in result.artifacts]}
        return text_of(parts[part] if part in parts else result.to_dict())

    async def _find(self, task_id: str) -> Record:
        """An unknown id is refused like one of another caller, so that the answer does not reveal which ids exist."""
        if not is_session_id(task_id):
            message = f"{task_id!r:.60} is not a taskId: they look like sess_1760000000_abc123."
            raise Refused(message, code="INVALID_PARAMETERS", advice="Take one from a result.")
        try:
            return await self._describe(task_id)
        except Misused as error:
            if error.code == "INVALID_TARGET":
                raise _not_yours(task_id) from None
            raise

    async def _callers(self, caller: str | None) -> set[str]:
        """The caller, and the delegations that it resumes."""
        found: set[str] = set()
        with contextlib.suppress(Misused):
            while caller is not None and caller not in found:
                found.add(caller)
                caller = (await self._describe(caller)).resumes
        return found

    async def _is_below(self, record: Record, callers: Collection[str]) -> bool:
        above = record.parent_id
        with contextlib.suppress(Misused):
            while above is not None and above not in callers:
                above = (await self._describe(above)).parent_id
            return above is not None
        return False


def _load(targets: Sequence[str]) -> None:
    """Import off the loop: on a slow disk it takes longer than an agent may block the loop."""
    for module in ("remit.builtin.assistant.message", *(f"remit.builtin.{one}" for one in targets if one in BUILTIN_TARGETS)):
        importlib.import_module(module)


def is_offered(spec: AgentSpec) -> bool:
    """All except itself and the board's bookkeeping roles."""
    return spec.name != ASSISTANT and not (is_role(spec) and spec.name in INTERNAL)
