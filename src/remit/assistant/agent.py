"""The assistant as an agent of the directory: `assistant(message, conversation?)`, and `results.read` beside it (S5.8).

Each message is one delegation, so that recording, deadline, cancelling the tree and budget are the engine's, as for everybody. Its own
delegations are its children.
"""

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from remit.agents.builtin import TARGETS
from remit.agents.function import FunctionAgent, agent
from remit.assistant.conversations import Conversation, Conversations
from remit.assistant.results import reading_agent, summarising_agent
from remit.core.agents import ASSISTANT, AgentSpec, is_role
from remit.core.errors import Misused, Unavailable
from remit.core.lineage import ROOT_CALLER
from remit.core.record import Record
from remit.flow.context import Context
from remit.flow.plain import clean
from remit.models.client import Models
from remit.models.messages import Choice
from remit.settings import Settings
from remit.system.threads import off_loop
from remit.tool.tool import Office

DESCRIPTION = "A language model that answers in words and has work done by delegating; it keeps the conversation."
INTERNAL = frozenset({"atomic-task-numberer", "status-sync-manager", "git-workflow-manager"})
"""Roles that do the board's own bookkeeping: commands call them, nobody else."""


class Bureau(Office, Protocol):
    """An open `Remit`."""

    @property
    def root(self) -> Path: ...
    async def children(self, session_id: str) -> list[Record]: ...
    async def tree(self, session_id: str) -> list[Record]: ...


class Assistant:
    """Of one Remit: knows which conversations are being answered."""

    def __init__(self, settings: Settings, models: Models, office: Bureau | None) -> None:
        self._settings = settings
        self._models = models
        self._office = office
        self._open: dict[str, Conversation] = {}
        """Those that are being answered, by the delegation that answers."""

    def agents(self) -> Iterable[FunctionAgent]:
        @agent(ASSISTANT, description=DESCRIPTION, workspace="none")
        async def assistant(ctx: Context, message: str, conversation: str | None = None) -> dict[str, Any]:
            return await self._answer(ctx, message, conversation, assistant.spec)

        return [assistant]

    def readers(self) -> Iterable[FunctionAgent]:
        records = _Absent() if self._office is None else self._office
        return [reading_agent(records, self.turns), summarising_agent(records, self.turns, self._models)]

    def turns(self, session_id: str) -> frozenset[str]:
        """All delegations that answered in the conversation which is being answered by this one; of any other none."""
        conversation = self._open.get(session_id)
        return frozenset() if conversation is None else frozenset(turn.session_id for turn in conversation.turns)

    async def _answer(self, ctx: Context, message: str, named: str | None, spec: AgentSpec) -> dict[str, Any]:
        if self._office is None:
            raise Unavailable("The assistant can be listed here, not asked.", advice="Open the project.")
        choice = self._models.choice()
        await off_loop(_load, self._settings.builtin_agents)
        from remit.assistant.message import Answering, Tools
        from remit.tool.tool import DelegateTool

        if not message.strip():
            raise Misused("The message is empty.", advice="Say what is to be done.")
        tools = Tools(
            settings=self._settings,
            models=self._models,
            choice=choice,
            tool=DelegateTool(self._office, among=is_offered),
            records=self._office,
            window=await off_loop(self._models.context_tokens, choice),
            now=self._office.clock.wall,
        )
        kept = Conversations(ctx.root, await self._holder(ctx.session_id))
        conversation = await off_loop(_opened, kept, message, named, choice)  # a long one takes a while to read
        with conversation.writing(ctx.session_id, tools.now()):
            for notice in conversation.notices:
                ctx.progress(notice)
            ctx.emit({"conversation": conversation.conversation_id})
            self._open[ctx.session_id] = conversation
            try:
                return await Answering(tools, ctx, spec, conversation, clean(message)).to_the_end()
            finally:
                self._open.pop(ctx.session_id, None)
                if not conversation.lines:  # refused before anything was said
                    conversation.path.unlink(missing_ok=True)

    async def _holder(self, session_id: str) -> str:
        """On whose behalf it is asked: who came in by a door goes on with conversations of its own only."""
        came = (await self._office.describe(session_id)).came if self._office is not None else None
        return "" if came is None or came.principal == ROOT_CALLER else came.principal


def _opened(kept: Conversations, message: str, named: str | None, choice: Choice) -> Conversation:
    is_new = named is None or not named.strip()
    return kept.new(message, model=", ".join(choice.names)) if is_new else kept.open(named or "")


def _load(targets: Sequence[str]) -> None:
    """What would be loaded on the loop while it is asked: on a slow disk that takes longer than an agent may hold the loop."""
    for module in ("remit.assistant.message", *(f"remit.agents.builtin.{one}" for one in targets if one in TARGETS)):
        importlib.import_module(module)


class _Absent:
    async def describe(self, session_id: str) -> Record:
        raise Unavailable("Nothing can be read here.", advice="Open the project.")


def is_offered(spec: AgentSpec) -> bool:
    """All but itself, and those that do the board's bookkeeping."""
    return spec.name != ASSISTANT and not (is_role(spec) and spec.name in INTERNAL)
