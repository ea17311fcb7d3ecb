"""`Remit`: the entry point of the package, and the module that assembles its parts.

The command line, the servers, the board and the assistant call it. None of them implements delegation itself."""

import asyncio
import contextlib
import hashlib
import logging
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import to_jsonable_python

from remit.core.agents import AgentSpec
from remit.core.cache import cache_prefix, cached_results
from remit.core.context import Handle
from remit.core.deadline import SYSTEM_CLOCK, Clock
from remit.core.delegation import ORIGIN, Delegation, Origin, on_behalf_of
from remit.core.errors import ErrorInfo, Misused, Refused
from remit.core.events import Event
from remit.core.ids import new_token
from remit.core.lifecycle import OUTCOMES, LifecycleEvent, LifecycleKind
from remit.core.policy import Approver, Policy
from remit.core.ports import AgentPort, Store
from remit.core.record import HistoryQuery, Record, history_query, registry_entry
from remit.core.redaction import redact_logs
from remit.core.request import Composition, Request, call
from remit.core.result import Return
from remit.runtime.accept import accept
from remit.runtime.deps import CURRENT, ROOT_LINEAGE, token_here
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.agents.attach_client import Attachment
    from remit.agents.attach_server import AttachServer
    from remit.agents.directory import Directory
    from remit.agents.executors import ExecutorDeps, Executors
    from remit.agents.function import FunctionAgent
    from remit.agents.process.pool import ProcessPool
    from remit.core.deadline import TimeLimits
    from remit.core.metrics import Metrics
    from remit.core.record import Owner
    from remit.core.settings import EngineSettings, Settings
    from remit.engines.embedded.events import EventStreams
    from remit.models.client import Models
    from remit.runtime.deps import LimitLearner, RuntimeDeps
    from remit.runtime.engine import Engine, EngineConfig, Recovered, WorkerInfo
    from remit.runtime.error_ledger import ErrorLedger, LedgerWriter
    from remit.runtime.local_context import LocalRun
    from remit.runtime.shipment import FileShipping
    from remit.runtime.telemetry.telemetry import Telemetry
    from remit.system.trust import DeclarationWatch, ProjectTrust

log = logging.getLogger("remit")
STORE_SECONDS = 10.0
"""How long closing the store may take: its server may not answer."""
RECALLED = 50
"""How many earlier messages of a conversation are considered."""

__all__ = ["Remit", "run"]


class _OpenArguments(NamedTuple):
    """Arguments of `Remit.open` besides the settings."""

    agents: tuple["FunctionAgent | AgentPort", ...]
    store: Store | None
    recover: bool
    policy: str | Path | Policy | None
    approver: Approver | None
    engine: "Callable[[EngineConfig], Engine] | None"
    trust: "ProjectTrust"
    is_worker: bool
    notice: str
    """Names the parts of the project that are not approved; empty if the caller has already reported them."""


class Remit:
    """A project's delegation runtime. `async with Remit.open(".") as remit: …`"""

    engine: "Engine"
    """Missing in an attached `Remit`: the owner of its tree runs all delegations."""
    owner: "Owner"
    store: Store
    directory: "Directory"
    recovered: "Recovered"
    loop: asyncio.AbstractEventLoop
    _deps: "RuntimeDeps"
    _reader: "Engine | EventStreams"
    """Follows delegations: the engine, or in an attached `Remit` the owner's record."""
    _executors: "Executors"
    _executor_deps: "ExecutorDeps"

    def __init__(self, root: Path, settings: "Settings", clock: Clock, given: _OpenArguments) -> None:
        self.root = root
        self.settings = settings
        self.clock = clock
        self._given = given
        self._attachment: Attachment | None = None
        """Connection to the owner of the tree if an agent opened this `Remit`; the owner then runs the delegations."""
        self._telemetry: Telemetry | None = None
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
        engine: "Callable[[EngineConfig], Engine] | None" = None,
        trust: "ProjectTrust | bool | str | None" = None,
        is_worker: bool = False,
    ) -> "Remit":
        """Open the project at `root` with `async with`. Agents also come from `.remit/agents/*.py` and entry points.

        `policy`: replaces the project's rules, as text or a path. `approver`: asks a person. `engine`: creates another engine. Without
        `recover`, delegations of dead processes are left to the next process. An agent's own `Remit` is attached to its tree: its
        delegations become children. `trust=True` approves all project files, a hash that content. `is_worker`: exit rather than overlap."""
        from remit.agents.process.target import must_not_start_anything
        from remit.core.settings import Settings
        from remit.system.settings_files import load_settings
        from remit.system.trust import ProjectTrust, load_trust

        must_not_start_anything()
        redact_logs()
        folder = Path(root).resolve()
        if not folder.is_dir():
            raise Misused(f"There is no folder {root}.", advice="Open a project by its root folder.")
        changed = {name: value for name, value in {"durability": durability, "slots_total": slots}.items() if value is not None}
        is_said = isinstance(trust, ProjectTrust)
        if not isinstance(trust, ProjectTrust):
            trust = load_trust(folder, trust)
        if isinstance(settings, Settings):
            settings = replace(settings, **changed)  # type: ignore[arg-type]
        else:
            settings = load_settings(folder, {**(settings or {}), **changed}, trust=trust)
        given = _OpenArguments(
            agents=tuple(agents),
            store=store,
            recover=recover,
            policy=policy,
            approver=approver,
            engine=engine,
            trust=trust,
            is_worker=is_worker,
            notice="" if is_said else trust.notice,
        )
        return cls(folder, settings, clock, given)

    async def __aenter__(self) -> "Remit":
        from remit.system.files import make_folder
        from remit.system.liveness import this_owner

        if self._is_open:
            raise Misused("This Remit is open already.", advice="Open another one: Remit.open(…).")
        self.loop = asyncio.get_running_loop()
        token = token_here()
        if token is not None:
            await self._attach(token)
            return self
        if self._given.notice:
            log.warning("%s", self._given.notice)
        self._warn_of_lax_policy()
        await off_loop(make_folder, self.folder)
        self.owner = this_owner(self.clock)
        self._telemetry = await self._open_telemetry()
        await self._load_directory(self.root)
        try:
            self._executors.warm_up()  # the fork server starts while the rest is opened
            self.store = self._given.store if self._given.store is not None else await off_loop(self._open_store)
            self._deps = await self._make_deps()
            self._reader = self.engine = self._make_engine()
            self.directory.each(self._limit_slots)
            self._is_open = True
            self.recovered = await self.engine.open(recover=self._given.recover)
        except BaseException:
            if self._is_open:
                await self.close(hand_over=True)  # the next process continues what this one had resumed
            else:
                await self._executors.close()
            raise
        return self

    def _warn_of_lax_policy(self) -> None:
        """Warn if a project file, approved or not, disables the enforcement of the policy."""
        mode, source = self.settings.policy_mode, self.settings.source_of("policy_mode")
        if mode != "strict" and source.startswith(("remit.toml", "pyproject.toml")):
            log.warning("policy_mode is %s in %s of this project: what the policy refuses is not refused.", mode, source)

    async def _attach(self, token: str) -> None:
        """Attach to the caller's tree: its owner runs and records the delegations."""
        from remit.agents.attach_client import attach
        from remit.engines.embedded.events import EventStreams
        from remit.runtime.engine import Recovered
        from remit.system.liveness import this_owner

        attachment = self._attachment = await attach(token)
        self.root = attachment.root
        self.owner = this_owner(self.clock)
        self._is_open = True
        try:
            await self._load_directory(None)
            self.directory = attachment.directory([given.spec.name for given in self._given.agents])
            self.store = await off_loop(attachment.open_store)
            self._reader = EventStreams(self.store, self.folder / "run")
            self.recovered = Recovered()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self, *, hand_over: bool = False) -> list[str]:
        """Stop all running delegations, write their records and release all resources.

        With `hand_over`, resumable delegations are not ended: the next process that opens the project continues them. Returns their session
        ids."""
        from remit.engines.embedded.events import EventStreams

        if not self._is_open:
            return []
        self._is_open = False
        if self._attachment is not None:
            await self._attachment.close()
            if isinstance(self._reader, EventStreams):
                self._reader.close()
            await self._executors.close()
            return []
        handed_over = await self.engine.drain() if hand_over else []
        await self.engine.close()
        if self._telemetry is not None:
            await self._telemetry.close()
        if "_attach_server" in vars(self):
            await self._attach_server.close()
        await self._executors.close()
        if "_ledger_writer" in vars(self):
            await off_loop(self._ledger_writer.close)
        self._deps.policy.close()
        if self._deps.rules.learner is not None:
            self._deps.rules.learner.close()
        if self._given.store is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STORE_SECONDS):
                    await off_loop(self.store.close)
        return handed_over

    @property
    def folder(self) -> Path:
        return self.root / ".remit"

    @cached_property
    def ledger(self) -> "ErrorLedger":
        from remit.runtime.error_ledger import ErrorLedger

        return ErrorLedger(self.folder / "errors.json", self.clock)

    @cached_property
    def _ledger_writer(self) -> "LedgerWriter":
        from remit.runtime.error_ledger import LedgerWriter

        return LedgerWriter(self.ledger, self.clock)

    @cached_property
    def _changes(self) -> "DeclarationWatch":
        from remit.system.trust import DeclarationWatch

        return DeclarationWatch(self.trust)

    @property
    def models(self) -> "Models":
        return self._executor_deps.models

    @property
    def trust(self) -> "ProjectTrust":
        """The approvals of the project when it was opened."""
        return self._given.trust

    @property
    def is_attached(self) -> bool:
        """Whether an agent opened this `Remit`; then the owner of its tree runs its delegations."""
        return self._attachment is not None

    @property
    def process_marks(self) -> dict[str, str]:
        """Variables for processes that belong to no delegation: if this process is killed, recovery ends those that have them."""
        from remit.system.processes import MARK, marker

        mark = marker(self._project, self.owner.owner_id, "command")
        return {MARK: mark if self._attachment is None else os.environ.get(MARK, "").rstrip()}  # its own: of the agent that opened this

    @property
    def has_record(self) -> bool:
        """Whether records can be read here. They cannot in a container, or if the owner of the tree keeps them in memory."""
        return self._attachment is None or self._attachment.has_record

    # ---- delegating

    async def delegate(self, agent: str | Composition, /, **asked: Any) -> Return:
        """Hand work to `agent` and wait for its return, which arrives by the deadline whatever the agent does. Accepts compositions such as
        `sequence(…)`."""
        return await self._delegate(call(agent, **asked))

    def _delegate(self, request: Request) -> Awaitable[Return]:
        if not self._is_open or self._attachment is not None:
            self._must_be_open()
            assert self._attachment is not None
            return self._attachment.delegate(request)
        caller, origin = self._caller()
        return self.engine.run(accept(request, caller, self._deps, origin))

    async def start(self, agent: str | Composition, /, **asked: Any) -> Handle:
        """Hand work to `agent` without waiting. The handle streams, cancels and gives the result."""
        self._must_be_open()
        if self._attachment is not None:
            return await self._attachment.start(call(agent, **asked))
        caller, origin = self._caller()
        return await self.engine.start(accept(call(agent, **asked), caller, self._deps, origin))

    async def gather(self, *requests: Request | Composition, limit: int | None = None) -> list[Return]:
        """Run several delegations at once, at most `limit` at a time. Returns results in call order, failures included."""
        from remit.runtime.local_context import GATHER_AT_ONCE, gather_returns

        current = CURRENT.get()
        above = ROOT_LINEAGE if current is None else current.delegation.lineage
        calls = [call(one) if isinstance(one, Composition) else one for one in requests]
        return await gather_returns(self._delegate, calls, limit or GATHER_AT_ONCE, above)

    def _caller(self) -> "tuple[LocalRun | None, Origin | None]":
        """The calling delegation, and the origin of an API request. A delegation made inside an agent is always its child, so limits cannot
        be bypassed."""
        current = CURRENT.get()
        if current is not None:
            if current.engine is not self.engine:
                from remit.agents.attach_client import not_yours

                raise not_yours(current.delegation.agent)
            return current, None
        if time.monotonic() >= self._changes.due_at and (line := self._changes.notice()):
            log.warning("%s", line)
        origin = ORIGIN.get()
        if origin is None:
            return None, None if self._telemetry is None else self._telemetry.origin()
        if origin.parent is not None:
            current = self.engine.find(origin.parent)
            if current is None or current.is_settled:
                raise Refused(
                    "The delegation that this token was given to has ended.", code="CALLER_REFUSED", advice="Ask with a token of your own."
                )
        return current, origin

    async def cancel(self, session_id: str, reason: str = "", *, source: str = "a person") -> list[dict[str, Any]]:
        """Stop a delegation and everything below it, in whichever process it runs. Returns how each node ended."""
        if self._attachment is not None:
            return await self._attachment.cancel(session_id, reason)
        return await self.engine.cancel(session_id, reason, source)

    async def work(self, agents: Collection[str] | None = None) -> None:
        """Take work for these agents, or for all, from the project's queues until this `Remit` is closed."""
        self._must_be_open()
        await self.engine.work(agents)

    async def workers(self) -> "list[WorkerInfo]":
        """List the processes that take work for the agents of this project."""
        self._must_be_open()
        return await self.engine.workers()

    async def recover(self) -> "Recovered":
        """Resume or settle the delegations of dead processes, and kill the processes they left behind."""
        from remit.runtime.engine import Recovered
        from remit.system.trust import summary_of

        self._must_be_open()
        if not self.trust.allows_recovery:
            raise self.trust.refused(f"Recovery runs agents of this project again, and {summary_of(self.trust.left_out)} of it")
        return Recovered() if self._attachment is not None else await self.engine.recover()

    # ---- agents and policy

    def register(self, agent: "FunctionAgent | AgentPort") -> None:
        self._must_be_open()
        if self._attachment is not None:
            raise Misused(
                "A Remit opened by an agent uses the agents of its tree.", advice="Declare this agent in the project of the tree."
            )
        self.directory.register(agent)
        self._limit_slots(agent.spec)

    def unregister(self, name: str) -> None:
        """Remove an agent that was registered while this `Remit` was open. Its running delegations continue."""
        self.directory.unregister(name)
        self.engine.limit_slots(name, None)

    async def reload(self) -> list[str]:
        """Reload the policy and return its problems. Agents are not reloaded."""
        from remit.policy.engine import ProjectPolicy

        self._must_be_open()
        if self._attachment is not None or not isinstance(self._deps.policy, ProjectPolicy):
            return []
        return list(self._deps.policy.reload())

    def note_access(self, entry: Mapping[str, Any]) -> None:
        """Write a refused caller to the audit log."""
        from remit.policy.audit import note_access

        note_access(self.folder, entry, self.clock.wall)

    # ---- queries: the store answers for all processes of the project

    async def describe(self, session_id: str) -> Record:
        """The record of a delegation."""
        record = await off_loop(self.store.get, session_id)
        if record is None:
            raise Misused(f"There is no delegation {session_id[:80]}.", code="INVALID_TARGET", advice="`remit history` lists them.")
        return record

    async def tree(self, session_id: str) -> list[Record]:
        """The whole tree of a delegation, callers before their children."""
        record = await self.describe(session_id)
        return await off_loop(self.store.tree, record.root_id)

    async def note_conversation(self, session_id: str, earlier: Sequence[str]) -> None:
        """Apply the policy facts of earlier messages of a conversation to this one: what their trees read and received."""
        from remit.runtime.deps import facts_of_records

        running = self.engine.find(session_id)
        if running is None:
            return
        if len(earlier) > RECALLED:
            running.tree.note_unknown()
        for one in earlier[-RECALLED:]:
            records = await off_loop(self.store.tree, one)
            facts_of_records(records, self.directory.find, running.tree)
            if records:
                running.tree.note_words(records[0].parameters)

    async def children(self, session_id: str) -> list[Record]:
        return await off_loop(self.store.children, session_id)

    async def events(self, session_id: str, after: int = 0) -> list[Event]:
        return await off_loop(self.store.events, session_id, after)

    async def live(self) -> list[Record]:
        """Everything queued or running in this project, in any process."""
        return await off_loop(self.store.live)

    async def history(self, *, status: str | None = None, **query: Any) -> list[Record]:
        """Finished and live delegations, newest first. Filters: root_id, agent, status, task_number, since,
        until; `before_session` pages."""
        return await off_loop(self.store.history, history_query(status, query))

    async def follow(self, session_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """Stream the events of a delegation, in any process, after event number `after`. The last one is its return.

        A slow reader delays nothing, and no events are buffered for it."""
        async with contextlib.aclosing(self._reader.follow(session_id, after)) as events:
            async for event in events:
                yield event

    async def result(self, session_id: str, *, wait_seconds: float = 0.0) -> Return | None:
        """The return of a delegation, waiting up to `wait_seconds` for it."""
        return await self._reader.result(session_id, wait_seconds)

    async def cached(self, agent: str | None = None) -> list[Record]:
        """The delegations whose results the cache may reuse, of one agent or of all."""
        return await off_loop(cached_results, self.store, agent)

    async def clear_cache(self, agent: str | None = None) -> int:
        """Invalidate the cached results of one agent or of all, and return their number. The delegations stay on record."""
        return await off_loop(self.store.drop_keys, cache_prefix(agent))

    async def metrics(self, since_seconds: float | None = None) -> "Metrics":
        """Metrics of the delegations of the last `since_seconds`, or of all on record, in any process."""
        from remit.core.metrics import metrics_of

        now = self.clock.wall()
        since = None if since_seconds is None else now - since_seconds
        return metrics_of(await off_loop(self.store.tally, since), since=since, until=now)

    def export_state(self) -> dict[str, Any]:
        """The registry: active delegations, counts, and those settled within the retention period.

        At most the newest 1,000 settled ones; `history` has all of them."""
        kept_since = self.clock.wall() - self.settings.retention_seconds
        live = self.store.live()
        begun_since = kept_since - self.settings.longest_timeout_seconds
        newest = self.store.history(HistoryQuery(since=begun_since, limit=1000))
        recent = [record for record in newest if record.settled_at is not None and record.settled_at >= kept_since]
        return {
            "active": len(live),
            "total": self.store.count(),
            "abandoned": dict(self.engine.abandoned()) if self._attachment is None else {},
            "list": [registry_entry(record) for record in (*live, *recent)],
        }

    # ---- lifecycle events: of this process alone

    def on_event(self, listener: Callable[[LifecycleEvent], None], kinds: Iterable[LifecycleKind] = OUTCOMES) -> Callable[[], None]:
        """Call `listener` on the event loop when a delegation starts or ends here, until the returned function is called.

        `kinds` selects other events, such as requests to APIs."""
        return self._listening_engine().bus.listen(listener, kinds)

    def report_access(self, api: str, principal: str | None, error: ErrorInfo | None = None) -> None:
        """Report that an API admitted a request or refused it with `error`."""
        self.engine.bus.access(api, principal, self.clock.wall(), error)

    def _listening_engine(self) -> "Engine":
        self._must_be_open()
        if self._attachment is not None:
            raise Misused("An agent's own Remit runs nothing itself.", advice="Listen where its tree is run.")
        return self.engine

    def _must_be_open(self) -> None:
        if not self._is_open:
            raise Misused("This Remit is not open.", advice="Use it inside `async with Remit.open(…) as remit:`.")

    # ---- putting the parts together

    @property
    def _project(self) -> str:
        """Identifies the project in the marks of its processes."""
        return hashlib.sha256(str(self.folder).encode()).hexdigest()[:12]

    async def _open_telemetry(self) -> "Telemetry | None":
        from remit.runtime.telemetry.telemetry import open_telemetry

        return await open_telemetry(
            self.settings, self.owner.owner_id, find=lambda name: self.directory.find(name), live=lambda: self.engine.live()
        )

    async def _make_deps(self) -> "RuntimeDeps":
        from remit.runtime.deps import Rules, RuntimeDeps

        settings = self.settings
        limits_for = lru_cache(maxsize=1024)(settings.limits_for)
        return RuntimeDeps(
            root=self.root,
            agents=self.directory,
            rules=Rules(
                limits_for=limits_for,
                learner=self._make_learner(limits_for),
                routing=settings.routing,
                languages=settings.languages,
                max_depth=settings.max_depth,
                cycles_by_task=settings.cycles == "task",
                budget=settings.budget,
            ),
            clock=self.clock,
            note_errors=self._note_errors,
            policy=await off_loop(self._open_policy),
            approver=self._given.approver,
            settings=settings,
            principal_of=self._principal_of,
            named_addresses=self._named_addresses,
        )

    def _make_learner(self, limits_for: "Callable[[str], TimeLimits]") -> "LimitLearner | None":
        from remit.runtime.deps import LimitLearner

        mode, in_loop = self.settings.adaptive_limits, self.settings.store.url is None
        return None if mode == "off" else LimitLearner(self.store, limits_for, self.clock, is_used=mode == "on", in_loop=in_loop)

    def _named_addresses(self) -> list[str]:
        from remit.runtime.deps import addresses_in

        return list(addresses_in(to_jsonable_python(self.settings, fallback=str)))

    def _principal_of(self, session_id: str) -> str | None:
        record = self.store.get(session_id)
        return None if record is None else on_behalf_of(record.caller_info)

    def _make_engine(self) -> "Engine":
        from remit.engines.embedded.embedded import EmbeddedEngine
        from remit.runtime.engine import EngineConfig

        settings, telemetry = self.settings, self._telemetry
        config = EngineConfig(
            deps=self._deps,
            store=self.store,
            owner=self.owner,
            folder=self.folder,
            project=self._project,
            commit_in_loop=settings.durability != "power" and settings.store.url is None,
            may_recover=self.trust.allows_recovery,
            middleware=() if telemetry is None else telemetry.middleware,
            listeners=() if telemetry is None else telemetry.listeners,
            caller_token=self._caller_token,
            reap=self._reap,
            kill=self._kill_processes,
            definition=self.directory.definition_hash,
        )
        chosen = settings.engine
        if self._given.engine is None and chosen.kind == "temporal":
            return self._make_temporal_engine(config, chosen)
        return (self._given.engine or EmbeddedEngine)(config)

    def _make_temporal_engine(self, config: "EngineConfig", chosen: "EngineSettings") -> "Engine":
        from remit.engines.temporal.connection import TemporalConfig, must_be_one_machine, place_of
        from remit.engines.temporal.engine import TemporalEngine
        from remit.stores import SqliteStore

        place = place_of(self.settings.store, self.folder / "remit.db")
        temporal = TemporalConfig.from_settings(chosen, store=place, exits_when_cut_off=self._given.is_worker)
        if isinstance(self.store, SqliteStore):
            must_be_one_machine(temporal)
        return TemporalEngine(config, temporal, self._make_shipping() if chosen.ships_files else None)

    def _make_shipping(self) -> "FileShipping":
        from remit.runtime.shipment import FileShipping
        from remit.stores.blobs import open_blobs

        hand_over_seconds = min(2.0, 0.1 * self.settings.engine.temporal.heartbeat_seconds)
        return FileShipping(open_blobs(self.settings), self.root, self.owner.host, hand_over_seconds=hand_over_seconds)

    @cached_property
    def _attach_server(self) -> "AttachServer":
        """Made for the first agent that may start a process, on whichever thread that asks."""
        from remit.agents.attach_server import AttachServer
        from remit.agents.function import spec_to_wire

        def facts() -> dict[str, Any]:
            """Facts that an attached process needs to know about this one."""
            return {
                "root": str(self.root),
                "database": str(self.folder / "remit.db") if self._given.store is None and self.settings.store.url is None else None,
                "owner_id": self.owner.owner_id,
                "agents": [spec_to_wire(spec) for spec in self.directory.specs()],
            }

        return AttachServer(
            self.engine,
            self._deps,
            self.store,
            facts,
            loop=self.loop,
            run_folder=self.folder / "run",
            project=self._project,
        )

    def _caller_token(self, live: "LocalRun") -> str:
        if not self._is_open and "_attach_server" not in vars(self):  # closing: a token that is refused, not a tree without limits
            return new_token(live.delegation.session_id, str(self.folder / "run" / f"{self.owner.owner_id}.sock"))
        return self._attach_server.token_for(live)

    def _reap(self, owner_id: str, session_id: str) -> int:
        from remit.system.processes import kill_tree, marked, marker

        mark = marker(self._project, owner_id, session_id)
        if left := len(marked(mark)):
            kill_tree(None, marker=mark, term_grace=0.1)
        return left

    def _kill_processes(self, session_ids: Collection[str]) -> None:
        if (processes := self._executor_deps.made("processes")) is not None:
            processes.stop_at_once(session_ids)

    def _limit_slots(self, spec: AgentSpec) -> None:
        """The slot limit of an agent: the settings override its declaration."""
        limit = self.settings.slots_for(spec.name)
        self.engine.limit_slots(spec.name, spec.slots if limit is None else limit)

    async def _load_directory(self, root: Path | None) -> None:
        """The agents passed to `open`, and those of the project at `root` if one is named."""
        from remit.agents.directory import Directory
        from remit.agents.executors import ExecutorDeps, Executors
        from remit.builtin import describe, load_project, offer_built_in

        self._executor_deps = ExecutorDeps(self._make_pool, self._make_models, self, self.root, self.trust)
        self._executors = Executors(self._executor_deps, self.settings.kill_grace_seconds)
        directory = self.directory = Directory(self._executors, self._executors.define)
        for given in self._given.agents:
            directory.register(given)
        if root is not None:
            load_project(directory, root, self.settings, self.trust, await off_loop(describe, root, self.settings, self.trust))
        offer_built_in(directory, self.settings, lambda: self.models, self)

    def _make_pool(self) -> "ProcessPool":
        from remit.agents.process.pool import ProcessPool
        from remit.system.settings_files import environment_of

        environment = {**environment_of(self.settings), **self.trust.environment}
        grace, passed = self.settings.kill_grace_seconds, self.settings.engine.temporal.pass_environment if self._given.is_worker else None
        return ProcessPool(project=self._project, owner_id=self.owner.owner_id, term_grace=grace, environment=environment, passed=passed)

    def _make_models(self) -> "Models":
        from remit.models.client import Models

        return Models(self.settings, self.root, on_call=None if self._telemetry is None else self._telemetry.model_called)

    def _open_store(self) -> Store:
        if self.settings.store.url is not None:
            from remit.stores import open_postgres

            shared = open_postgres(self.settings)
            shared.owner_id = self.owner.owner_id
            return shared
        from remit.stores.sqlite import open_bound
        from remit.system.trust import database_item

        item = database_item(self.root)
        adopts = item is not None and self.trust.allows(item)
        if adopts:
            from remit.runtime.workspaces import adopt_workspaces

            adopt_workspaces(self.root)
        store = open_bound(self.folder / "remit.db", durability=self.settings.durability, adopts=adopts)
        store.owner_id = self.owner.owner_id
        return store

    def _open_policy(self) -> Policy:
        """The rules passed to `open`, else the project's, else the default."""
        from remit.policy.engine import open_policy

        given = self._given.policy
        if given is not None and not isinstance(given, str | Path):
            return given
        mode, owner = self.settings.policy_mode, self.owner.owner_id
        return open_policy(self.folder, mode, owner=owner, clock=self.clock, given=given, trust=self.trust)

    def _note_errors(self, delegation: Delegation, errors: Iterable[ErrorInfo], stack_trace: str) -> None:
        """Write errors to the error ledger. A requested cancellation is not an error."""
        from remit.runtime.error_ledger import ErrorOccurrence

        for error in (error for error in errors if error.code != "CANCELLED"):
            self._ledger_writer.post(
                ErrorOccurrence(
                    error=error,
                    agent=delegation.agent,
                    command=delegation.command,
                    session_id=delegation.session_id,
                    task_number=delegation.task.task_number if delegation.task else None,
                    path=delegation.lineage.path,
                    root_id=delegation.lineage.root_id,
                    stack_trace=stack_trace,
                )
            )


def run(agent: str | Composition, /, *, root: str | Path = ".", agents: Iterable["FunctionAgent | AgentPort"] = (), **asked: Any) -> Return:
    """Blocking variant for scripts: open the project, delegate, close."""

    async def once() -> Return:
        async with Remit.open(root, agents=agents) as remit:
            return await remit.delegate(agent, **asked)

    return asyncio.run(once())
