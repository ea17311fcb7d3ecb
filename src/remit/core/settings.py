"""Settings: every key with its type, its limits and its default. `system.settings_files` reads them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field

from remit.core.budget import Limits
from remit.core.deadline import TimeLimits
from remit.core.routing import DEFAULT_TABLE, RoutingTable, Rule

# ---- types of values


def _none(value: Any) -> Any:
    """TOML has no null: "none" says it."""
    return None if isinstance(value, str) and value.lower() == "none" else value


def _one_or_several(value: Any) -> Any:
    """A name, several with commas between them (as the environment has them), or a list; "none" is none."""
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
Listening = Annotated[str, Field(pattern=r"^(unix|unix:\S.*|\S+:\d{1,5})$")]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """`[web]`: what `worker.web_fetch` holds to. How far it may reach is the policy's to say."""

    __pydantic_config__ = FORBID
    max_bytes: Count = 5 * 1024 * 1024
    """Of one answer, unpacked; what is beyond it is cut, and said to be."""
    ca_file: NameOrNone = None
    """A file of certificates (PEM) that are trusted beside the usual ones; below the project's root unless it is a whole path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """`[search]`: what `worker.web_search` asks, in this order."""

    __pydantic_config__ = FORBID
    providers: tuple[Name, ...] = ("searxng", "brave", "duckduckgo")
    """Their names; also one that a package offers, or `module:function`. Those that are not set up are passed over."""
    searxng_url: Address = None
    """Where a SearXNG answers that gives JSON."""
    brave_key_variable: Annotated[str, _VARIABLE] = "BRAVE_API_KEY"
    """The variable of the environment that holds the key; the key itself never stands in a file."""
    seconds_between: Waiting = 1.0
    """At least so long between two requests to one provider, of all processes of the project together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAddress:
    """`[models.NAME]`: a model under a name of one's own, at whatever address."""

    __pydantic_config__ = FORBID
    kind: Literal["openai", "openai-responses", "anthropic", "google", "ollama", "local"] = "openai"
    """What it speaks: `openai` is Chat Completions, which most servers speak; `local` runs a GGUF file here."""
    model: str = ""
    """The provider's own name for it; empty: NAME. For a local model its GGUF file."""
    url: Address = None
    """Where it answers; None: the provider's own address."""
    key_variable: Annotated[str | None, _VARIABLE, BeforeValidator(_none)] = None
    """The variable of the environment that holds its key, which itself never stands in a file. None: the provider's usual one, but of
    an address (`url`) that is not the provider's own none at all."""
    max_tokens: Count | None = None
    """Of one reply."""
    context_tokens: Count | None = None
    """How much it can read at once; None: what is known of it."""
    tools: Literal["native", "prompted"] | None = None
    """How it calls tools: in its own way, or by JSON we ask for in words; None: native, but of a local one what its template can do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """`[prices."NAME"]`: money for a million tokens, before what is known of the model."""

    __pydantic_config__ = FORBID
    input: Waiting
    output: Waiting
    cached: Waiting | None = None
    """Of input that was read from the provider's cache; None: as other input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantSettings:
    """`[assistant]`."""

    __pydantic_config__ = FORBID
    message_seconds: Seconds = 120.0
    """How long it has for one message, unless a delegation inside it was given more."""
    result_characters: Annotated[int, Field(strict=True, ge=200, le=100_000)] = 4000
    """How much of one result it is shown; the whole is kept, and can be read by range."""
    compact_tokens: Annotated[int, Field(strict=True, ge=1000)] = 60_000
    """When its conversation is larger, what is old is summarised; never more than its model can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """`[serve]`: what `remit serve` opens, and the limits of callers whose token sets none."""

    __pydantic_config__ = FORBID
    doors: Annotated[tuple[Literal["grpc", "http", "a2a", "mcp", "metrics"], ...], BeforeValidator(_one_or_several)] = (
        "grpc",
        "http",
        "a2a",
        "mcp",
        "metrics",
    )
    grpc: Listening = "unix"
    """Where gRPC listens: `unix` (a socket of this project that its owner alone can open), `unix:PATH`, or HOST:PORT."""
    http: Listening = "127.0.0.1:7411"
    """Where HTTP, A2A, MCP and the metrics listen: HOST:PORT, or `unix:PATH`. Port 0: any that is free."""
    public_url: Address = None
    """How others reach it, for the A2A card; None: where it listens."""
    tls_certificate: NameOrNone = None
    """PEM; below the project's root unless it is a whole path. Needed to listen beyond this machine."""
    tls_key: NameOrNone = None
    client_ca: NameOrNone = None
    """PEM: callers whose certificate it signed are known by it (mutual TLS)."""
    behind_proxy: Flag = False
    """A proxy in front of it ends TLS: it may listen beyond this machine without a certificate. Tokens are needed all the same."""
    allow_hosts: Names = ()
    """Names of this machine that clients may call it by, beside loopback's and those it listens at."""
    request_bytes: Annotated[int, Field(strict=True, ge=1024)] = 4 * 1024 * 1024
    requests_per_second: Seconds = 200.0
    """Of one principal."""
    burst: Count = 400
    streams: Count = 2000
    """How many one principal may have open at once."""
    stop_seconds: Waiting = 30.0
    """Told to stop, it lets what runs finish for so long; what is left then is stopped, and what it did is kept."""
    heartbeat_seconds: Seconds = 10.0
    """A registered agent that is not heard of for twice that long is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSettings:
    """`[signals]`: traces, metrics and logs."""

    __pydantic_config__ = FORBID
    otlp_url: Address = None
    """Where traces and metrics go, by OTLP over HTTP, e.g. http://127.0.0.1:4318; None: nowhere."""
    service_name: Name = "remit"
    content: Flag = False
    """Whether spans carry parameters and summaries too."""
    metric_seconds: Seconds = 15.0
    """How often metrics are sent."""
    logs: Literal["text", "json"] = "text"
    """How `remit serve` writes its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    __pydantic_config__ = FORBID
    durability: Literal["process", "power"] = "process"
    """Survives the death of the process, or also a power cut (each group is synced to disk)."""
    slots_total: Count = 256
    """How many delegations run at once."""
    slots_per_agent: Mapping[Name, Count] = field(default_factory=dict)
    slots_per_agent_default: Annotated[Count | None, BeforeValidator(_none)] = None
    """For agents not named in `slots_per_agent`; None: no limit of their own."""
    queue_limit: CountOrZero = 10_000
    """How many may wait; beyond that, QUEUE_FULL."""
    max_depth: Count = 3
    cycles: Literal["agent", "task"] = "agent"
    """What makes a cycle: the same agent again, or only the same agent with the same task."""
    ageing_seconds: Seconds = 30.0
    """Waiting that long raises priority by one."""
    kill_grace_seconds: Waiting = 0.25
    """Between SIGTERM and SIGKILL."""
    block_limit_seconds: Seconds = 2.0
    """An agent that blocks the event loop longer than this is named and stopped."""
    describe_seconds: Seconds = 3.0
    """How long the Python agent files of the project may take to load when they are described. They load at the same time."""
    budget: Limits = field(default_factory=lambda: Limits(delegations=1000, alive=256))
    """Of each tree that asks for none of its own."""
    timeouts: Mapping[str, TimeLimits] = field(default_factory=lambda: dict(DEFAULT_TIMEOUTS))
    retention_seconds: Waiting = 3600.0
    """How long finished delegations stay in the registry."""
    cleanup_seconds: Seconds = 300.0
    history_days: AmountOrNone = None
    """How long finished delegations stay in history; None: for good."""
    chunk_limit_bytes: CountOrZero = 4 * 1024 * 1024
    """How much one delegation may stream and have kept."""
    routing: RoutingTable = DEFAULT_TABLE
    languages: tuple[Name, ...] = ("general", "lean", "markdown", "python")
    """Those a task may name; more can be added."""
    agents: Mapping[Name, dict[str, Any]] = field(default_factory=dict)
    """`[agents.NAME]`: agents that are no Python functions, as they were written; `agents.declarations` judges them."""
    profiles_on: NameOrNone = None
    """The agent that carries out agent files which name none themselves; None: the first coding agent there is."""
    generate_on: NameOrNone = None
    """The agent that writes the code for `coder.generate_code` where there is no model; None: no agent, because it may cost money."""
    roles: Mapping[Name, Name] = field(default_factory=dict)
    """`[roles]`: who carries out a role of the board, or an agent file: the name of an agent that can, or `built-in`."""
    builtin_agents: tuple[Literal["worker", "researcher", "coder", "roles", "assistant"], ...] = (
        "worker",
        "researcher",
        "coder",
        "roles",
        "assistant",
    )
    """Which of the agents that come with remit are in the directory."""
    policy_mode: Literal["strict", "permissive", "disabled"] = "strict"
    """Whether what the policy refuses is refused, only logged, or not even asked."""
    approval_seconds: Seconds = 120.0
    """How long a person is waited for where the policy says to ask; never longer than the delegation has left."""
    accept_in: Literal["sandbox", "host"] = "sandbox"
    """Where acceptance commands run. Those of a plan, of a model or of a caller from outside run in the sandbox either way."""
    accept_env: Names = ()
    """Variables of the environment that acceptance commands get beside the usual ones."""
    accept_read: Names = ()
    """Paths that acceptance commands may read in the sandbox beside the toolchain; relative ones start at the project's root."""
    accept_memory_mb: CountOrNone = None
    """Memory of an acceptance command in the sandbox; None: half of the machine's."""
    accept_processes: Count = 4096
    """Processes and threads of an acceptance command in the sandbox."""
    board_commits: Flag = True
    """Whether commands of the board commit what they write, in a git checkout; `board.commits` reads it by itself."""
    model: Names = ()
    """The language model, `anthropic:…`, `openai:…` or NAME of `[models.NAME]`; several: the next one when one fails."""
    models: Mapping[Name, ModelAddress] = field(default_factory=dict)
    prices: Mapping[Name, Price] = field(default_factory=dict)
    model_requests: Count = 50
    """How often one delegation may ask its model."""
    model_idle_seconds: Seconds = 60.0
    """A model that says nothing for so long has failed; the next one is asked."""
    assistant: AssistantSettings = field(default_factory=AssistantSettings)
    serve: ServeSettings = field(default_factory=ServeSettings)
    signals: SignalSettings = field(default_factory=SignalSettings)
    web: Web = field(default_factory=Web)
    search: Search = field(default_factory=Search)
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Where each value came from, by key: `remit.toml:[budget].delegations`, `env REMIT_…`, `argument`, `default`."""
    not_approved: tuple[str, ...] = field(default=(), compare=False)
    """Settings of the project's files that are left out because no person approved them: `remit.toml:[models.x]`."""

    def limits_for(self, name: str) -> TimeLimits:
        """For an agent (`worker.read_file` is a `worker`) or a command (`/research`)."""
        found = self.timeouts.get(name)
        if found is None:
            short = name.removeprefix("/")
            found = self.timeouts.get(short) or self.timeouts.get(short.partition(".")[0]) or self.timeouts[OTHER]
        return found

    @property
    def longest_timeout_seconds(self) -> float:
        """No delegation runs longer."""
        return max(limits.maximum_seconds for limits in self.timeouts.values())

    def slots_for(self, agent: str) -> int | None:
        """How many of `agent` may run at once; its own name, then its target's, then the default."""
        named = self.slots_per_agent
        return named.get(agent, named.get(agent.partition(".")[0], self.slots_per_agent_default))

    def source_of(self, key: str) -> str:
        """Of a table: where the first of its keys was said."""
        return self.sources.get(key) or next((said for name, said in self.sources.items() if name.startswith(f"{key}.")), "default")

    def source_of_agent(self, name: str) -> str:
        """The place of its table: `remit.toml:[agents.NAME]`."""
        source = self.source_of(f"agents.{name}")
        file, in_file, place = source.partition(":[")
        return f"{file}:[{'tool.remit.' if place.startswith('tool.') else ''}agents.{name}]" if in_file else source


NAMES = tuple(field.name for field in fields(Settings) if field.name not in ("sources", "not_approved"))
"""Of all settings."""


# ---- what the files of a project may set without a person's approval


_HARMLESS = frozenset({
    "languages", "durability", "builtin_agents", "board_commits", "signals.service_name", "signals.logs", "assistant.result_characters",
    "assistant.compact_tokens",
})  # fmt: skip
"""They start nothing, send nothing, and weaken no limit, whatever their value."""
_HARMLESS_LOWER: Mapping[str, float] = {
    "slots_total": 256, "queue_limit": 10_000, "max_depth": 3, "chunk_limit_bytes": 4 * 1024 * 1024, "approval_seconds": 120,
    "model_requests": 50, "assistant.message_seconds": 120, "web.max_bytes": 5 * 1024 * 1024, "serve.request_bytes": 4 * 1024 * 1024,
    "serve.requests_per_second": 200, "serve.burst": 400, "serve.streams": 2000, "budget.delegations": 1000, "budget.alive": 256,
    "budget.tokens": float("inf"), "budget.cost": float("inf"), "budget.seconds": float("inf"),
}  # fmt: skip
"""Limits: harmless up to their default."""


def is_harmless(key: tuple[str, ...], value: Any) -> bool:
    """Whether a file of a project may set this key to this value, as it is written there, without approval."""
    name = ".".join(key)
    if name in _HARMLESS or (name, value) == ("policy_mode", "strict"):
        return True
    most = _HARMLESS_LOWER.get(name)
    if key[0] == "timeouts" and len(key) == 3:
        limits = DEFAULT_TIMEOUTS.get(key[1], DEFAULT_TIMEOUTS[OTHER])
        most = {"default": limits.default_seconds, "maximum": limits.maximum_seconds}.get(key[2])
    return most is not None and isinstance(value, int | float) and not isinstance(value, bool) and value <= most


# ---- tables whose values are made of what is written: budget, time limits and routing


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetTable:
    __pydantic_config__ = FORBID
    delegations: Annotated[CountOrZero | None, BeforeValidator(_none)] = 1000
    alive: Annotated[CountOrZero | None, BeforeValidator(_none)] = 256
    tokens: Annotated[CountOrZero | None, BeforeValidator(_none)] = None
    cost: AmountOrNone = None
    seconds: AmountOrNone = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutTable:
    __pydantic_config__ = FORBID
    default: Seconds | None = None
    maximum: Seconds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTable:
    __pydantic_config__ = FORBID
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
"""The types of these settings as they are written."""


def settings_from(written: Mapping[str, Any], sources: Mapping[str, str]) -> Settings:
    """Of values that were checked; what is not written has its default."""
    values = dict(written)
    if "budget" in values:
        values["budget"] = Limits(**asdict(values["budget"]))
    if "timeouts" in values:
        values["timeouts"] = time_limits(values["timeouts"])
    if "routing" in values:
        rules = {name: [Rule(**asdict(rule)) for rule in some] for name, some in values["routing"].items()}
        values["routing"] = DEFAULT_TABLE.extended(rules)
    return Settings(**values, sources=sources)


def time_limits(written: Mapping[str, TimeoutTable]) -> dict[str, TimeLimits]:
    """The defaults with what is written laid over them. A new name takes the rest from `other`."""
    limits = dict(DEFAULT_TIMEOUTS)
    for name, said in sorted(written.items(), key=lambda item: item[0] != OTHER):
        before = limits.get(name, limits[OTHER])
        default, maximum = said.default or before.default_seconds, said.maximum or before.maximum_seconds
        if name not in limits and said.default is None:
            default = min(default, maximum)
        limits[name] = TimeLimits(default_seconds=default, maximum_seconds=maximum)
    return limits
