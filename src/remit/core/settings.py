"""Settings: every key with its type, limits and default. `system.settings_files` reads them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import BeforeValidator, ConfigDict, Field

from remit.core.budget import Limits
from remit.core.deadline import TimeLimits
from remit.core.routing import DEFAULT_TABLE, RoutingTable, Rule

# ---- types of values


def _none(value: Any) -> Any:
    """ "none" means None: TOML has no null."""
    return None if isinstance(value, str) and value.lower() == "none" else value


def _one_or_several(value: Any) -> Any:
    """A name, several separated by commas (as in environment variables), or a list; "none" is empty."""
    if not isinstance(value, str):
        return value
    return [] if value.lower() == "none" else [name.strip() for name in value.split(",") if name.strip()]


Flag = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=1)]
CountOrNone = Annotated[int | None, Field(strict=True, ge=1), BeforeValidator(_none)]
CountOrZero = Annotated[int, Field(strict=True, ge=0)]
Seconds = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Waiting = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
AmountOrNone = Annotated[float | None, Field(strict=True, ge=0, allow_inf_nan=False), BeforeValidator(_none)]
Name = Annotated[str, Field(min_length=1)]
NameOrNone = Annotated[Name | None, BeforeValidator(_none)]
Names = Annotated[tuple[Name, ...], BeforeValidator(_one_or_several)]
Address = Annotated[str | None, Field(pattern=r"^https?://[^/@\s]+(/\S*)?$"), BeforeValidator(_none)]
Listening = Annotated[str, Field(pattern=r"^(unix|\S+:\d{1,5})$")]
HostAndPort = Annotated[str, Field(pattern=r"^\S+:\d{1,5}$")]
Api = Literal["grpc", "http", "a2a", "mcp", "metrics"]
BuiltinAgents = Literal["worker", "researcher", "coder", "compose", "roles", "assistant"]
_VARIABLE = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)


FORBID = ConfigDict(extra="forbid")
"""An unknown key is an error."""


# ---- the tables


def _limits(default: float, maximum: float) -> TimeLimits:
    return TimeLimits(default_seconds=default, maximum_seconds=maximum)


OTHER = "other"
DEFAULT_TIMEOUTS: Mapping[str, TimeLimits] = {
    "task": _limits(300, 300),
    "todo": _limits(300, 300),
    "research": _limits(3600, 7200),
    "plan": _limits(1800, 3600),
    "implement": _limits(7200, 14400),
    "revise": _limits(1800, 3600),
    "review": _limits(3600, 7200),
    "errors": _limits(1800, 3600),
    "meta": _limits(7200, 14400),
    "worker": _limits(60, 300),
    "researcher": _limits(300, 600),
    "coder": _limits(120, 300),
    "assistant": _limits(3600, 7200),
    OTHER: _limits(3600, 7200),
}
"""Time limits: commands, delegate targets, and everything else."""


class Web(NamedTuple):
    """`[web]`: limits of `worker.web_fetch`. The policy decides which hosts it may reach."""

    max_bytes: Count = 5 * 1024 * 1024
    """Maximum size of one response, uncompressed; more is cut, with a notice."""
    ca_file: NameOrNone = None
    """File of additional trusted certificates (PEM); relative to the project root."""


class Search(NamedTuple):
    """`[search]`: providers of `worker.web_search`, in order."""

    providers: tuple[Name, ...] = ("searxng", "brave", "duckduckgo")
    """Providers that are not set up are skipped."""
    searxng_url: Address = None
    """Address of a SearXNG server that returns JSON."""
    brave_key_variable: Annotated[str, _VARIABLE] = "BRAVE_API_KEY"
    """Environment variable with the key; keys are never written to files."""


class ModelAddress(NamedTuple):
    """`[models.NAME]`: a model with a name of your choice, at any address."""

    kind: Literal["openai", "openai-responses", "anthropic", "google", "ollama", "local"] = "openai"
    """Its protocol: `openai` is Chat Completions, which most servers speak; `local` runs a GGUF file here."""
    model: str = ""
    """The provider's name of the model; empty: NAME. For a local model its GGUF file."""
    url: Address = None
    """Its address; None: the provider's own."""
    key_variable: Annotated[str | None, _VARIABLE, BeforeValidator(_none)] = None
    """Environment variable with the key, which is never written to a file. None: the provider's usual one, but no key for an address
    (`url`) that is not the provider's own."""
    max_tokens: Count | None = None
    """Maximum tokens of one reply."""
    context_tokens: Count | None = None
    """Context size; None: the known size of the model."""


class Price(NamedTuple):
    """`[prices."NAME"]`: price per million tokens; overrides known prices."""

    input: Waiting
    output: Waiting
    cached: Waiting | None = None
    """Price of input from the provider's cache; None: as other input."""


class AssistantSettings(NamedTuple):
    """`[assistant]`."""

    message_seconds: Seconds = 120.0
    """Timeout of one message, unless a delegation inside it was given more."""
    result_characters: Annotated[int, Field(strict=True, ge=200, le=100_000)] = 4000
    """Maximum length of one result as shown to it, at least 600; the rest can be read by range."""
    compact_tokens: Annotated[int, Field(strict=True, ge=1000)] = 60_000
    """Size above which older parts of a conversation are shortened; at most its model's context."""


class ServeSettings(NamedTuple):
    """`[serve]`: what `remit serve` opens, and to whom."""

    apis: Annotated[tuple[Api, ...], BeforeValidator(_one_or_several)] = get_args(Api)
    grpc: Listening = "unix"
    """Where gRPC listens: `unix` (a socket of this project that only its owner can open), or HOST:PORT."""
    http: HostAndPort = "127.0.0.1:7411"
    """Where HTTP, A2A, MCP and the metrics listen: HOST:PORT. Port 0: any free port."""
    public_url: Address = None
    """Public address for the A2A card; None: the listening address."""
    behind_proxy: Flag = False
    """A proxy terminates TLS, so the server may listen beyond this machine. Tokens are still required."""
    allow_hosts: Names = ()
    """Host names by which clients may call this machine, beside loopback and the listening addresses."""
    request_bytes: Annotated[int, Field(strict=True, ge=1024)] = 4 * 1024 * 1024
    stop_seconds: Waiting = 30.0
    """How long running work may finish after a stop; the rest is then stopped, and its work so far is kept."""
    heartbeat_seconds: Seconds = 10.0
    """A registered agent without a heartbeat for twice this time is lost."""


class StoreSettings(NamedTuple):
    """`[store]`: where delegations are recorded."""

    url: Annotated[str | None, Field(pattern=r"^postgres(ql)?://\S+$"), BeforeValidator(_none)] = None
    """PostgreSQL, for a record shared by several machines, without a password (PGPASSWORD, PGPASSFILE); None: SQLite in `.remit`."""
    schema: Annotated[str, Field(pattern=r"^[a-z_][a-z0-9_]{0,40}$")] = "remit"
    """Schema in PostgreSQL. Projects with the same url and schema share one record."""


class TemporalSettings(NamedTuple):
    """`[engine.temporal]`: the connection to the cluster. Defaults come from the `TEMPORAL_*` variables and profiles."""

    address: NameOrNone = None
    """HOST:PORT of the Temporal server; None: TEMPORAL_ADDRESS or the profile, else localhost:7233."""
    namespace: NameOrNone = None
    """None: TEMPORAL_NAMESPACE or the profile, else `default`."""
    profile: NameOrNone = None
    """Profile of Temporal's own configuration file; None: TEMPORAL_PROFILE, else `default`."""
    heartbeat_seconds: Annotated[float, Field(strict=True, ge=2, allow_inf_nan=False)] = 30.0
    """A worker that is silent for this long loses its delegations; it stops them itself at three quarters of it."""
    worker_wait_seconds: Seconds = 60.0
    """How long a delegation waits for a worker that serves its agent before it ends as AGENT_UNAVAILABLE."""
    one_machine: Flag = False
    """All workers run on this machine: then the project's SQLite database may be used with a server that is not on loopback."""
    files: Literal["shared", "shipped"] = "shared"
    """How files reach other machines: through a project directory that all see, or through the object store `blobs`."""
    blobs: Annotated[str | None, Field(pattern=r"^(s3|file)://[^\s@?#]+$"), BeforeValidator(_none)] = None
    """Where shipped files are kept: `s3://BUCKET/PREFIX`, by the `AWS_*` variables, or `file:///PATH`, a directory that all see."""
    pass_environment: Names = ()
    """Variables of a worker, or patterns like `STRIPE_*`, that its process agents see beside those that every program needs."""


class EngineSettings(NamedTuple):
    """`[engine]`: what runs delegations."""

    kind: Literal["embedded", "temporal"] = "embedded"
    """`embedded`: the process that delegates; `temporal`: workers that take work from Temporal (`remit worker`)."""
    project: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"), BeforeValidator(_none)] = None
    """Project name shared by all its processes and used in its task queues. Required by `temporal`."""
    temporal: TemporalSettings = TemporalSettings()

    @property
    def ships_files(self) -> bool:
        return self.kind == "temporal" and self.temporal.files == "shipped"


class SignalSettings(NamedTuple):
    """`[signals]`: traces, metrics and logs."""

    otlp_url: Address = None
    """Destination of traces and metrics, OTLP over HTTP, e.g. http://127.0.0.1:4318; None: not sent."""
    service_name: Name = "remit"
    logs: Literal["text", "json"] = "text"
    """Log format of `remit serve`."""


class WorkspaceSettings(NamedTuple):
    """`[workspace]`: worktrees of tasks, and how their work lands."""

    setup: tuple[Name, ...] = ()
    """Commands that run once in each new worktree, in the sandbox of acceptance commands with a network: `uv sync`."""
    copy: Names = ()
    """Files and folders outside git, copied from the project into each new worktree: `.env`."""
    link: Names = ()
    """The same, as links to the project: `node_modules`."""
    accept: tuple[Name, ...] = ()
    """Commands that must exit 0 on the merged tree before the work of a task is merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a project."""

    __pydantic_config__ = FORBID
    durability: Literal["process", "power"] = "process"
    """Survives the death of the process, or also a power cut (each group is synced to disk)."""
    slots_total: Count = 256
    """Maximum delegations running at once."""
    slots_per_agent: Mapping[Name, Count] = field(default_factory=dict)
    slots_per_agent_default: Annotated[Count | None, BeforeValidator(_none)] = None
    """For agents not in `slots_per_agent`; None: no limit of their own."""
    queue_limit: CountOrZero = 10_000
    """Maximum queued delegations; more are refused with QUEUE_FULL."""
    max_depth: Count = 3
    cycles: Literal["agent", "task"] = "agent"
    """Definition of a cycle: the same agent again, or the same agent with the same task."""
    ageing_seconds: Seconds = 30.0
    """Waiting time that raises the priority by one."""
    kill_grace_seconds: Waiting = 0.25
    """Between SIGTERM and SIGKILL."""
    block_limit_seconds: Seconds = 2.0
    """An agent that blocks the event loop longer is named and stopped."""
    describe_seconds: Seconds = 3.0
    """Time limit for loading the project's Python agent files to describe them, in parallel; MCP servers get three times as long to list
    their tools."""
    adaptive_limits: Literal["off", "observe", "on"] = "observe"
    """Whether timeouts and idle limits are learned from the runs of each agent: used, or only noted with the delegation."""
    budget: Limits = field(default_factory=lambda: Limits(delegations=1000, alive=256))
    """Default budget of each tree."""
    timeouts: Mapping[str, TimeLimits] = field(default_factory=lambda: dict(DEFAULT_TIMEOUTS))
    retention_seconds: Waiting = 3600.0
    """How long finished delegations stay in the registry."""
    cleanup_seconds: Seconds = 300.0
    history_days: AmountOrNone = 365.0
    """How long finished delegations stay in history; None: for ever."""
    chunk_limit_bytes: CountOrZero = 4 * 1024 * 1024
    """Maximum streamed output that is kept per delegation."""
    routing: RoutingTable = DEFAULT_TABLE
    languages: tuple[Name, ...] = ("general", "lean", "markdown", "python")
    """Languages that a task may name; extensible."""
    agents: Mapping[Name, dict[str, Any]] = field(default_factory=dict)
    """`[agents.NAME]`: agents that are not Python functions, as written; `agents.declarations` validates them."""
    profiles_on: NameOrNone = None
    """The agent that executes agent files which name none; None: the first coding agent found."""
    roles: Mapping[Name, Name] = field(default_factory=dict)
    """`[roles]`: the agent that executes a role of the board or an agent file, or `built-in`."""
    builtin_agents: tuple[BuiltinAgents, ...] = get_args(BuiltinAgents)
    """Built-in agents in the directory."""
    policy_mode: Literal["strict", "permissive", "disabled"] = "strict"
    """Whether policy refusals are enforced, only logged, or not evaluated."""
    approval_seconds: Seconds = 120.0
    """How long to wait for a person when the policy asks; at most the remaining time of the delegation."""
    accept_in: Literal["sandbox", "host"] = "sandbox"
    """Where acceptance commands run. Those of a plan, a model or an external caller always run in the sandbox."""
    accept_env: Names = ()
    """Environment variables that acceptance commands get beside the usual ones."""
    accept_read: Names = ()
    """Paths that acceptance commands may read in the sandbox beside the toolchain; relative to the project root."""
    accept_memory_mb: CountOrNone = None
    """Memory of an acceptance command in the sandbox; None: half of the machine's."""
    accept_processes: Count = 4096
    """Processes and threads of an acceptance command in the sandbox."""
    board_commits: Flag = True
    """Whether board commands commit their changes, in a git checkout; `board.commits` reads it itself."""
    model: Names = ()
    """The language model, `anthropic:…`, `openai:…` or NAME of `[models.NAME]`; several: the next one after a failure."""
    models: Mapping[Name, ModelAddress] = field(default_factory=dict)
    prices: Mapping[Name, Price] = field(default_factory=dict)
    model_requests: Count = 50
    """Maximum requests of one delegation to its model."""
    model_idle_seconds: Seconds = 60.0
    """A model that is silent for this long has failed; the next one is asked."""
    assistant: AssistantSettings = field(default_factory=AssistantSettings)
    serve: ServeSettings = field(default_factory=ServeSettings)
    signals: SignalSettings = field(default_factory=SignalSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    web: Web = field(default_factory=Web)
    search: Search = field(default_factory=Search)
    workspace: WorkspaceSettings = field(default_factory=WorkspaceSettings)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Source of each value by key: `remit.toml:[budget].delegations`, `env REMIT_…`, `argument`, `default`."""
    not_approved: tuple[str, ...] = field(default=(), compare=False)
    """Settings in project files that are ignored because no person approved them: `remit.toml:[models.x]`."""

    def limits_for(self, name: str) -> TimeLimits:
        """Limits of an agent (`worker.read_file` is a `worker`) or a command (`/research`)."""
        found = self.timeouts.get(name)
        if found is None:
            short = name.removeprefix("/")
            found = self.timeouts.get(short) or self.timeouts.get(short.partition(".")[0]) or self.timeouts[OTHER]
        return found

    @property
    def longest_timeout_seconds(self) -> float:
        """Upper bound of all timeouts."""
        return max(limits.maximum_seconds for limits in self.timeouts.values())

    @property
    def has_mcp_servers(self) -> bool:
        return any("mcp" in table for table in self.agents.values())

    def slots_for(self, agent: str) -> int | None:
        """Maximum parallel runs of `agent`: by its own name, then its target's, then the default."""
        named = self.slots_per_agent
        return named.get(agent, named.get(agent.partition(".")[0], self.slots_per_agent_default))

    def source_of(self, key: str) -> str:
        """The source of a key; for a table, that of its first key."""
        return self.sources.get(key) or next((said for name, said in self.sources.items() if name.startswith(f"{key}.")), "default")

    def source_of_agent(self, name: str) -> str:
        """The location of its table: `remit.toml:[agents.NAME]`."""
        source = self.source_of(f"agents.{name}")
        file, in_file, place = source.partition(":[")
        return f"{file}:[{'tool.remit.' if place.startswith('tool.') else ''}agents.{name}]" if in_file else source


NAMES = tuple(field.name for field in fields(Settings) if field.name not in ("sources", "not_approved"))
"""Names of all settings."""


# ---- settings that project files may change without approval


_HARMLESS = frozenset({
    "languages", "durability", "builtin_agents", "board_commits", "signals.service_name", "signals.logs", "assistant.result_characters",
    "assistant.compact_tokens",
})  # fmt: skip
"""Harmless with any value: they start nothing, send nothing, and weaken no limit."""
_HARMLESS_VALUES = (("policy_mode", "strict"), ("adaptive_limits", "off"), ("adaptive_limits", "observe"))
_HARMLESS_LOWER: Mapping[str, float] = {
    "slots_total": 256, "queue_limit": 10_000, "max_depth": 3, "chunk_limit_bytes": 4 * 1024 * 1024, "approval_seconds": 120,
    "model_requests": 50, "assistant.message_seconds": 120, "web.max_bytes": 5 * 1024 * 1024, "serve.request_bytes": 4 * 1024 * 1024,
    "budget.delegations": 1000, "budget.alive": 256, "budget.tokens": float("inf"), "budget.cost": float("inf"),
    "budget.seconds": float("inf"),
}  # fmt: skip
"""Limits that are harmless up to their default."""


def is_harmless(key: tuple[str, ...], value: Any) -> bool:
    """Whether a project file may set this key to this written value without approval."""
    name = ".".join(key)
    if name in _HARMLESS or (name, value) in _HARMLESS_VALUES:
        return True
    most = _HARMLESS_LOWER.get(name)
    if key[0] == "timeouts" and len(key) == 3:
        limits = DEFAULT_TIMEOUTS.get(key[1], DEFAULT_TIMEOUTS[OTHER])
        most = {"default": limits.default_seconds, "maximum": limits.maximum_seconds}.get(key[2])
    return most is not None and isinstance(value, int | float) and not isinstance(value, bool) and value <= most


# ---- tables with converted values: budget, time limits and routing


class BudgetTable(NamedTuple):
    delegations: Annotated[CountOrZero | None, BeforeValidator(_none)] = 1000
    alive: Annotated[CountOrZero | None, BeforeValidator(_none)] = 256
    tokens: Annotated[CountOrZero | None, BeforeValidator(_none)] = None
    cost: AmountOrNone = None
    seconds: AmountOrNone = None


class TimeoutTable(NamedTuple):
    default: Seconds | None = None
    maximum: Seconds | None = None


class RuleTable(NamedTuple):
    agent: NameOrNone
    mode: str = ""
    then: tuple[Name, ...] = ()
    language: Name | None = None
    has_plan: Annotated[bool | None, Field(strict=True)] = None


WRITTEN: Mapping[str, Any] = {
    "budget": BudgetTable,
    "timeouts": Mapping[Name, TimeoutTable],
    "routing": Mapping[Name, tuple[RuleTable, ...]],
}
"""The types of these settings as written."""


def settings_from(written: Mapping[str, Any], sources: Mapping[str, str]) -> Settings:
    """Settings from checked values; missing ones get their defaults."""
    values = dict(written)
    if "budget" in values:
        values["budget"] = Limits(**values["budget"]._asdict())
    if "timeouts" in values:
        values["timeouts"] = time_limits(values["timeouts"])
    if "routing" in values:
        rules = {name: [Rule(**rule._asdict()) for rule in some] for name, some in values["routing"].items()}
        values["routing"] = DEFAULT_TABLE.extended(rules)
    return Settings(**values, sources=sources)


def time_limits(written: Mapping[str, TimeoutTable]) -> dict[str, TimeLimits]:
    """The defaults overridden by what is written. A new name inherits from `other`."""
    limits = dict(DEFAULT_TIMEOUTS)
    for name, said in sorted(written.items(), key=lambda item: item[0] != OTHER):
        before = limits.get(name, limits[OTHER])
        default, maximum = said.default or before.default_seconds, said.maximum or before.maximum_seconds
        if name not in limits and said.default is None:
            default = min(default, maximum)
        limits[name] = TimeLimits(default_seconds=default, maximum_seconds=maximum)
    return limits
