"""The shape that files, the environment and arguments must have; checked here and turned into `values` at once. Reads nothing."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from remit.core.budget import Limits
from remit.core.deadline import TimeLimits
from remit.runtime.route import DEFAULT_TABLE, RoutingTable, Rule
from remit.runtime.settings.values import (
    DEFAULT_TIMEOUTS,
    OTHER,
    AssistantSettings,
    ModelAddress,
    Price,
    Search,
    ServeSettings,
    Settings,
    SignalSettings,
    Web,
)


def _none(value: Any) -> Any:
    """TOML has no word for nothing: "none" says it."""
    return None if isinstance(value, str) and value.lower() == "none" else value


def _one_or_several(value: Any) -> Any:
    """A name, several with commas between them (as the environment has them), or a list; "none" is none."""
    if not isinstance(value, str):
        return value
    return [] if value.lower() == "none" else [name.strip() for name in value.split(",") if name.strip()]


Count = Annotated[int, Field(strict=True, ge=1)]
Seconds = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)]
Waiting = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
CountOrNone = Annotated[int | None, Field(strict=True, ge=0), BeforeValidator(_none)]
AmountOrNone = Annotated[float | None, Field(strict=True, ge=0, allow_inf_nan=False), BeforeValidator(_none)]
Name = Annotated[str, Field(min_length=1)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class BudgetTable(_Table):
    delegations: CountOrNone = 1000
    alive: CountOrNone = 256
    tokens: CountOrNone = None
    cost: AmountOrNone = None
    seconds: AmountOrNone = None


class TimeoutTable(_Table):
    default: Seconds | None = None
    maximum: Seconds | None = None


class WebTable(_Table):
    max_bytes: Count = Web().max_bytes
    ca_file: Annotated[Name | None, BeforeValidator(_none)] = None


class SearchTable(_Table):
    providers: tuple[Name, ...] = Search().providers
    searxng_url: Annotated[str | None, Field(pattern=r"^https?://[^/@\s]+(/\S*)?$"), BeforeValidator(_none)] = None
    brave_key_variable: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)] = Search().brave_key_variable
    seconds_between: Waiting = Search().seconds_between


class ModelTable(_Table):
    kind: Literal["openai", "openai-responses", "anthropic", "google", "ollama", "local"] = "openai"
    model: str = ""
    url: Annotated[str | None, Field(pattern=r"^https?://[^/@\s]+(/\S*)?$"), BeforeValidator(_none)] = None
    key_variable: Annotated[str | None, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100), BeforeValidator(_none)] = None
    max_tokens: Count | None = None
    context_tokens: Count | None = None
    tools: Literal["native", "prompted"] | None = None


class PriceTable(_Table):
    input: Waiting
    output: Waiting
    cached: Waiting | None = None


class AssistantTable(_Table):
    message_seconds: Seconds = AssistantSettings().message_seconds
    result_characters: Annotated[int, Field(strict=True, ge=200, le=100_000)] = AssistantSettings().result_characters
    compact_tokens: Annotated[int, Field(strict=True, ge=1000)] = AssistantSettings().compact_tokens


_SERVE = ServeSettings()
_SIGNALS = SignalSettings()
NameOrNone = Annotated[Name | None, BeforeValidator(_none)]
Listening = Annotated[str, Field(pattern=r"^(unix|unix:\S.*|\S+:\d{1,5})$")]


class ServeTable(_Table):
    doors: Annotated[tuple[Literal["grpc", "http", "a2a", "mcp", "metrics"], ...], BeforeValidator(_one_or_several)] = _SERVE.doors  # type: ignore[assignment]
    grpc: Listening = _SERVE.grpc
    http: Listening = _SERVE.http
    public_url: Annotated[str | None, Field(pattern=r"^https?://[^/@\s]+(/\S*)?$"), BeforeValidator(_none)] = None
    tls_certificate: NameOrNone = None
    tls_key: NameOrNone = None
    client_ca: NameOrNone = None
    behind_proxy: Annotated[bool, Field(strict=True)] = _SERVE.behind_proxy
    allow_hosts: Annotated[tuple[Name, ...], BeforeValidator(_one_or_several)] = ()
    request_bytes: Annotated[int, Field(strict=True, ge=1024)] = _SERVE.request_bytes
    requests_per_second: Seconds = _SERVE.requests_per_second
    burst: Count = _SERVE.burst
    streams: Count = _SERVE.streams
    stop_seconds: Waiting = _SERVE.stop_seconds
    heartbeat_seconds: Seconds = _SERVE.heartbeat_seconds
    push_inside: Annotated[bool, Field(strict=True)] = _SERVE.push_inside


class SignalTable(_Table):
    otlp_url: Annotated[str | None, Field(pattern=r"^https?://[^/@\s]+(/\S*)?$"), BeforeValidator(_none)] = None
    service_name: Name = _SIGNALS.service_name
    content: Annotated[bool, Field(strict=True)] = _SIGNALS.content
    metric_seconds: Seconds = _SIGNALS.metric_seconds
    logs: Literal["text", "json"] = _SIGNALS.logs


class RuleTable(_Table):
    agent: Annotated[Name | None, BeforeValidator(_none)]
    mode: str = ""
    then: tuple[Name, ...] = ()
    language: Name | None = None
    has_plan: Annotated[bool | None, Field(strict=True)] = None

    def rule(self) -> Rule:
        return Rule(agent=self.agent, mode=self.mode, then=self.then, language=self.language, has_plan=self.has_plan)


_BUILT_IN = Settings()


class SettingsTable(_Table):
    durability: Literal["process", "power"] = _BUILT_IN.durability
    slots_total: Count = _BUILT_IN.slots_total
    slots_per_agent: dict[Name, Count] = {}
    slots_per_agent_default: Annotated[int | None, Field(strict=True, ge=1), BeforeValidator(_none)] = None
    queue_limit: Annotated[int, Field(strict=True, ge=0)] = _BUILT_IN.queue_limit
    max_depth: Count = _BUILT_IN.max_depth
    cycles: Literal["agent", "task"] = _BUILT_IN.cycles
    ageing_seconds: Seconds = _BUILT_IN.ageing_seconds
    kill_grace_seconds: Waiting = _BUILT_IN.kill_grace_seconds
    block_limit_seconds: Seconds = _BUILT_IN.block_limit_seconds
    budget: BudgetTable = BudgetTable()
    timeouts: dict[Name, TimeoutTable] = {}
    retention_seconds: Waiting = _BUILT_IN.retention_seconds
    cleanup_seconds: Seconds = _BUILT_IN.cleanup_seconds
    history_days: AmountOrNone = None
    chunk_limit_bytes: Annotated[int, Field(strict=True, ge=0)] = _BUILT_IN.chunk_limit_bytes
    routing: dict[Name, tuple[RuleTable, ...]] = {}
    languages: tuple[Name, ...] = _BUILT_IN.languages
    agents: dict[Name, dict[str, Any]] = {}
    roles: dict[Name, Name] = {}
    builtin_agents: tuple[Literal["worker", "researcher", "coder", "roles", "assistant"], ...] = _BUILT_IN.builtin_agents  # type: ignore[assignment]
    policy_mode: Literal["strict", "permissive", "disabled"] = _BUILT_IN.policy_mode
    approval_seconds: Seconds = _BUILT_IN.approval_seconds
    accept_env: Annotated[tuple[Name, ...], BeforeValidator(_one_or_several)] = ()
    board_commits: Annotated[bool, Field(strict=True)] = _BUILT_IN.board_commits
    profiles_on: Annotated[Name | None, BeforeValidator(_none)] = None
    generate_on: Annotated[Name | None, BeforeValidator(_none)] = None
    model: Annotated[tuple[Name, ...], BeforeValidator(_one_or_several)] = ()
    models: dict[Name, ModelTable] = {}
    prices: dict[Name, PriceTable] = {}
    model_requests: Count = _BUILT_IN.model_requests
    model_idle_seconds: Seconds = _BUILT_IN.model_idle_seconds
    assistant: AssistantTable = AssistantTable()
    serve: ServeTable = ServeTable()
    signals: SignalTable = SignalTable()
    web: WebTable = WebTable()
    search: SearchTable = SearchTable()

    def values(self, sources: dict[str, str]) -> Settings:
        plain = {name: getattr(self, name) for name in _PLAIN}
        return Settings(
            **plain,
            budget=Limits(**self.budget.model_dump()),
            timeouts=self.time_limits(),
            routing=self.routing_table(),
            models={name: ModelAddress(**table.model_dump()) for name, table in self.models.items()},
            prices={name: Price(**table.model_dump()) for name, table in self.prices.items()},
            assistant=AssistantSettings(**self.assistant.model_dump()),
            serve=ServeSettings(**self.serve.model_dump()),
            signals=SignalSettings(**self.signals.model_dump()),
            web=Web(**self.web.model_dump()),
            search=Search(**self.search.model_dump()),
            sources=sources,
        )

    def time_limits(self) -> dict[str, TimeLimits]:
        """The defaults, with what was said laid over them. A new name takes what it does not say from `other`."""
        limits = dict(DEFAULT_TIMEOUTS)
        for name, said in sorted(self.timeouts.items(), key=lambda item: item[0] != OTHER):
            before = limits.get(name, limits[OTHER])
            default, maximum = said.default or before.default_seconds, said.maximum or before.maximum_seconds
            if name not in limits and said.default is None:
                default = min(default, maximum)
            limits[name] = TimeLimits(default_seconds=default, maximum_seconds=maximum)
        return limits

    def routing_table(self) -> RoutingTable:
        return DEFAULT_TABLE.extended({name: [r.rule() for r in rules] for name, rules in self.routing.items()})


_COMPOSED = frozenset({"budget", "timeouts", "routing", "models", "prices", "assistant", "serve", "signals", "web", "search"})
_PLAIN = tuple(name for name in SettingsTable.model_fields if name not in _COMPOSED)
