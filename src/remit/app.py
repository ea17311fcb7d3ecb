"""`Remit`: the one door (design 1). Command line, servers, board and assistant translate to it; none decides anything itself."""

import asyncio
import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from remit.core.agents import AgentSpec
from remit.core.deadline import SYSTEM_CLOCK, Clock
from remit.core.delegation import ORIGIN, Origin
from remit.core.errors import Misused, Refused, Unavailable
from remit.core.policy import Approver, Policy
from remit.core.ports import AgentPort, Store
from remit.core.redaction import redact_logs
from remit.core.request import call
from remit.core.result import Return
from remit.looking import Looking
from remit.runtime import accept
from remit.runtime.context import Handle
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.agents.attach.attached import Attachment
    from remit.agents.attach.board import Switchboard
    from remit.agents.directory import Directory
    from remit.agents.function import FunctionAgent
    from remit.core.settings import Settings
    from remit.engines.embedded.peers import Doorbell
    from remit.engines.embedded.recovery import Recovered
    from remit.runtime.telemetry.telemetry import Signals

__all__ = ["Remit", "run"]


class Remit(Looking):
    """A project's delegation runtime. `async with Remit.open(".") as remit: …`"""

    def __init__(
        self, root: Path, agents: Iterable["FunctionAgent | AgentPort"], settings: "Settings", clock: Clock, store: Store | None
    ) -> None:
        self.root = root
        self.settings = settings
        self.clock = clock
        self.folder = root / ".remit"
        self._given = tuple(agents)
        self.directory: Directory
        self._store_given = store
        self._policy_given: str | Path | Policy | None = None
        self._approver: Approver | None = None
        self._bell: Doorbell | None = None
        self._board: Switchboard | None = None
        self._recovers = True
        self._recovery: asyncio.Task[Recovered] | None = None
        self._attachment: Attachment | None = None
        """The line to the owner of the tree, when it was opened by an agent: then that one runs what is delegated here."""
        self._signals: Signals | None = None
        self._is_open = False

    @classmethod
    def open(
        cls,
        root: str | Path = ".",
        *,
        agents: Iterable["FunctionAgent | AgentPort"] = (),
        durability: str | None = None,
        slots: int | None = None,
        settings: "Settings | Mapping[str, Any] | None" = None,
        clock: Clock = SYSTEM_CLOCK,
        store: Store | None = None,
        recover: bool = True,
        policy: str | Path | Policy | None = None,
        approver: Approver | None = None,
    ) -> "Remit":
        """The runtime of the project at `root`; opened by `async with`. Agents also come from `.remit/agents/*.py` and entry points.

        `policy`: rules other than those of the project, as text or as a path; `approver`: who asks a person where a rule says so.
        Without `recover` it leaves what dead processes were running to the next who opens the project. Opened by an agent, in whatever
        process and folder, it is attached to the tree of that agent: what it delegates is the agent's child, kept where its tree is kept.
        """
        from remit.agents.process.target import must_not_start_anything
        from remit.core.settings import Settings
        from remit.system.settings_files import load_settings

        must_not_start_anything()
        redact_logs()
        folder = Path(root).resolve()
        if not folder.is_dir():
            raise Misused(f"There is no folder {root}.", advice="Open a project by its root folder.")
        given: dict[str, Any] = {"durability": durability, "slots_total": slots}
        if isinstance(settings, Settings):
            settings = replace(settings, **{name: value for name, value in given.items() if value is not None})
        else:
            arguments = dict(settings or {})
            arguments.update({name: value for name, value in given.items() if value is not None})
            settings = load_settings(folder, arguments)
        remit = cls(folder, agents, settings, clock, store)
        remit._recovers = recover
        remit._policy_given, remit._approver = policy, approver
        return remit

    async def __aenter__(self) -> "Remit":
        from remit.agents.attach.address import token_here
        from remit.engines.embedded.embedded import EmbeddedEngine
        from remit.engines.embedded.peers import this_owner
        from remit.runtime.deps import RuntimeDeps
        from remit.runtime.error_ledger import ErrorLedger, LedgerWriter
        from remit.runtime.telemetry.telemetry import open_signals
        from remit.system.files import make_folder
        from remit.wiring import noting, options_of, policy_of, rules_of

        if self._is_open:
            raise Misused("This Remit is open already.", advice="Open another one: Remit.open(…).")
        self.loop = asyncio.get_running_loop()
        token = token_here()
        if token is not None:
            await self._attach(token)
            return self
        await off_loop(make_folder, self.folder)
        self.owner = this_owner(self.clock)
        self.ledger = ErrorLedger(self.folder / "errors.json", self.clock)
        self._ledger_writer = LedgerWriter(self.ledger, self.clock)
        self._load_directory(self.root)
        self.store = self._store_given if self._store_given is not None else await off_loop(self._open_store)
        self._deps = RuntimeDeps(
            root=self.root,
            agents=self.directory,
            rules=rules_of(self.settings),
            clock=self.clock,
            note_errors=noting(self._ledger_writer),
            policy=await off_loop(policy_of, self._policy_given, self.folder, self.settings, self.owner, self.clock),
            approver=self._approver,
            approval_seconds=self.settings.approval_seconds,
        )
        self.engine = EmbeddedEngine(self._deps, self.store, self.owner, self.folder, options_of(self.settings, self._project))
        self.directory.each(self._limit_slots)
        self._is_open = True
        try:
            self._signals = await open_signals(self.engine, self.models, self.settings)  # before recovery, which has things to tell
            await self._move_in()
        except BaseException:
            await self.close(hand_over=True)  # what was resumed already is the next one's to go on with
            raise
        return self

    async def _attach(self, token: str) -> None:
        """Opened by an agent: the owner of its tree runs and records what is delegated here; this one recovers nothing and ends nothing."""
        from remit.agents.attach.attached import attach
        from remit.engines.embedded.peers import this_owner
        from remit.engines.embedded.recovery import Recovered
        from remit.runtime.error_ledger import ErrorLedger

        attachment = self._attachment = await attach(token)
        opened_at, self.root = self.root, attachment.root
        self.folder = self.root / ".remit"
        self.owner = this_owner(self.clock)
        self.ledger = ErrorLedger(self.folder / "errors.json", self.clock)
        self._is_open = True
        try:
            is_elsewhere = opened_at != self.root and not opened_at.is_relative_to(self.folder)
            self._load_directory(opened_at if is_elsewhere else None)
            self.directory = attachment.directory(self.directory, [given.spec.name for given in self._given])
            self.store = await off_loop(attachment.open_store)
            self.recovered = Recovered()
        except BaseException:
            await self.close()
            raise

    async def _move_in(self) -> None:
        """Be known as an owner, reachable by others, before anything runs; then look after what the dead left."""
        from remit.agents.attach.board import Switchboard
        from remit.engines.embedded.peers import Doorbell
        from remit.engines.embedded.recovery import Recovered
        from remit.upkeep import keep_house

        self.engine.recover = self.recover
        self._bell = Doorbell(self.engine)
        self._board = Switchboard(
            self.engine, self._facts, lambda session_id, reason, source: self.cancel(session_id, reason, source=source)
        )
        await self.engine.journal.call(lambda store: store.enrol(self.owner))
        self.recovered = await self.recover() if self._recovers else Recovered()
        self._carriers.warm_up()
        self.engine.spawn(keep_house(self.engine, self.settings, self._bell.carry_out_cancels))

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self, *, hand_over: bool = False) -> list[str]:
        """Stop what still runs, write everything, leave nothing behind.

        With `hand_over` what can be run again is not ended: whoever opens the project next goes on with it. Gives what was handed over."""
        from remit.engines.embedded import recovery
        from remit.engines.embedded.peers import note_closed

        handed_over: list[str] = []
        if not self._is_open:
            return handed_over
        self._is_open = False
        if self._attachment is not None:
            await self._attachment.close()
            if self._own_watcher is not None:
                self._own_watcher.close()
            await self._carriers.close()
            await self.models.close()
            return handed_over
        if self._bell is not None:
            self._bell.close()
        if hand_over:
            if self._recovery is not None and not self._recovery.done():  # what it has not come to, the next one finds
                self._recovery.cancel()
                await asyncio.wait([self._recovery])
            handed_over = await recovery.hand_over(self.engine)
        await self.engine.close()
        if self._signals is not None:
            await self._signals.close()
        if self._board is not None:
            await self._board.close()
        await self._carriers.close()
        await self.models.close()
        with contextlib.suppress(Unavailable):
            if not self.engine.journal.owes and not self.engine.running:  # what is still owed, the next one finds and settles
                await off_loop(self.store.dismiss, self.owner.owner_id)
        await off_loop(self._ledger_writer.close)
        self._deps.policy.close()
        if self._store_given is None:
            await off_loop(self.store.close)
        note_closed(self.owner.owner_id)
        return handed_over

    # ---- delegating

    async def delegate(self, agent: str, /, **asked: Any) -> Return:
        """Hand work to `agent` and wait for its return: by its deadline, whatever the agent does."""
        self._must_be_open()
        if self._attachment is not None:
            return await self._attachment.delegate(call(agent, **asked))
        caller, origin = self._caller()
        return await accept.delegate(call(agent, **asked), caller, self._deps, self.engine, origin)

    async def start(self, agent: str, /, **asked: Any) -> Handle:
        """Hand work to `agent` and go on; the handle streams, cancels and gives the result."""
        self._must_be_open()
        if self._attachment is not None:
            return await self._attachment.start(call(agent, **asked))
        caller, origin = self._caller()
        return await accept.start(call(agent, **asked), caller, self._deps, self.engine, origin)

    def _caller(self) -> tuple[Any, Origin | None]:
        """Delegating from inside one of our agents, by whatever way, makes a child of it: limits cannot be stepped around.

        From outside, whoever came in by a door is known by its origin (`core.origin`)."""
        running = self.engine.current()
        if running is not None:
            if running.engine is not self.engine:
                from remit.agents.attach.address import not_yours

                raise not_yours(running.delegation.agent)
            return running, None
        origin = ORIGIN.get()
        if origin is None and self._signals is not None:
            return None, self._signals.origin()
        if origin is not None and origin.parent is not None:
            running = self.engine.running.get(origin.parent)
            if running is None or running.is_settled:
                raise Refused(
                    "The delegation that this token was given to has ended.", code="CALLER_REFUSED", advice="Ask with a token of your own."
                )
        return running, origin

    async def reload(self) -> list[str]:
        """Read the policy again at once; returns what is wrong with it. Agents stay as they were when the project was opened."""
        from remit.wiring import rules_read_again

        self._must_be_open()
        return [] if self._attachment is not None else list(rules_read_again(self._deps.policy))

    def register(self, agent: "FunctionAgent | AgentPort") -> None:
        from remit.agents.function import FunctionAgent

        self._must_be_open()
        if self._attachment is not None:
            self._attachment.lend(self.directory, self._carriers(agent) if isinstance(agent, FunctionAgent) else agent)
            return
        self.directory.register(agent)
        self._limit_slots(agent.spec)
        self.engine._fill()  # it may have more slots than it had

    def unregister(self, name: str) -> None:
        """Of an agent that was registered while this was open; what it runs goes on."""
        self.directory.unregister(name)
        self.engine.slots.limit(name, None)

    def note_access(self, entry: Mapping[str, Any]) -> None:
        """Into the audit log: who was turned away at a door."""
        from remit.policy.audit import note_access

        note_access(self.folder, entry, self.clock.wall)

    def _limit_slots(self, spec: AgentSpec) -> None:
        """Settings before the agent's own declaration."""
        limit = self.settings.slots_for(spec.name)
        self.engine.slots.limit(spec.name, spec.slots if limit is None else limit)

    # ---- ending and repairing

    async def cancel(self, session_id: str, reason: str = "", *, source: str = "a person", force: bool = False) -> list[dict[str, Any]]:
        """Stop a delegation and everything below it; how each node ended. Also when another process runs it.

        `force`: processes that were started for it here are killed at once; otherwise they have `kill_grace_seconds` to tidy up."""
        from remit.engines.embedded.recovery import cancel_anywhere

        if self._attachment is not None:
            return await self._attachment.cancel(session_id, reason)
        kill = self._carriers.processes.stop_at_once if force else None
        return await cancel_anywhere(self.engine, session_id, reason, source, self._reap, kill)

    async def recover(self) -> "Recovered":
        """Find what dead processes were running: resume it or settle it, and end the processes they left."""
        from remit.engines.embedded.peers import sweep_bells
        from remit.engines.embedded.recovery import Recovered, recover

        self._must_be_open()
        if self._attachment is not None:
            return Recovered()
        if self._recovery is None or self._recovery.done():
            sweep_bells(self.engine.run_folder)
            self._recovery = self.engine.spawn(recover(self.engine, self.engine.run_folder, self._reap))
        try:
            return await asyncio.shield(self._recovery)  # ours, and shared: whoever stops waiting does not stop it half-way
        except asyncio.CancelledError:
            if self._recovery.cancelled() and not self._is_open:
                raise Misused("This Remit was closed while it recovered.", advice="Open it again.") from None
            raise

    def _reap(self, owner_id: str) -> int:
        from remit.agents.process.pool import marker
        from remit.system.processes import kill_tree, marked

        mark = marker(self._project, owner_id)
        left = len(marked(mark))
        if left:
            kill_tree(None, marker=mark, term_grace=0.1)
        return left

    # ---- wiring

    def _load_directory(self, root: Path | None) -> None:
        """Of the agents given, and of those of the project at `root`, if one is named."""
        from remit.agents.directory import Directory
        from remit.agents.executors import Executors
        from remit.agents.process.pool import ProcessPool
        from remit.builtin import offer_built_in
        from remit.builtin.assistant import offer_assistant
        from remit.models.client import Models
        from remit.system.settings_files import environment_of
        from remit.wiring import routed_by_agents

        self._project = hashlib.sha256(str(self.folder).encode()).hexdigest()[:12]
        grace = self.settings.kill_grace_seconds
        told = environment_of(self.settings)
        pool = ProcessPool(project=self._project, owner_id=self.owner.owner_id, term_grace=grace, environment=told)
        self.models = Models(self.settings, self.root)
        self._carriers = Executors(pool, grace, self.models, self, self.root)
        self.directory = Directory(self._carriers, self._carriers.define)
        for given in self._given:
            self.directory.register(given)
        if root is not None:
            self.directory.load_folder(root / ".remit" / "agents")
            self.directory.load_definitions(root, self.settings)
            self.directory.load_entry_points()
        offer_built_in(self.directory, self.settings, self.models)
        offer_assistant(self.directory, self.settings, self.models, self)
        self.settings = routed_by_agents(self.settings, self.directory)

    def _facts(self) -> dict[str, Any]:
        """What an attached process must know of this one."""
        from remit.agents.attach.board import spec_to_wire

        return {
            "root": str(self.root),
            "database": str(self.folder / "remit.db") if self._store_given is None else None,
            "owner_id": self.owner.owner_id,
            "agents": [spec_to_wire(spec) for spec in self.directory.specs()],
        }

    def _open_store(self) -> Store:
        from remit.stores.sqlite import SqliteStore

        store = SqliteStore(self.folder / "remit.db", durability=self.settings.durability)
        store.owner_id = self.owner.owner_id
        return store


def run(agent: str, /, *, root: str | Path = ".", agents: Iterable["FunctionAgent | AgentPort"] = (), **asked: Any) -> Return:
    """The blocking twin for scripts: open the project, delegate, close."""

    async def once() -> Return:
        async with Remit.open(root, agents=agents) as remit:
            return await remit.delegate(agent, **asked)

    return asyncio.run(once())
