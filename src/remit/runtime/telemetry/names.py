"""Names of exported telemetry: spans, attributes, instruments, labels, buckets.

OpenTelemetry's names for generative AI are still "Development"; this is the only place to change them. Remit's own are `remit.*` on spans
and `delegation.*` for instruments. Instruments have the same names in Prometheus, whether scraped at `/metrics` or received through a
collector. Values only. Used by the other telemetry modules and by the tests of the documentation."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from remit.core.lifecycle import LifecycleKind
from remit.core.metrics import FAILED_STARTS, LATENCY_P99, TOTAL
from remit.core.ports import AgentPort
from remit.core.states import LIVE, State
from remit.runtime.local_context import LocalRun

SCOPE = "remit"
"""Instrumentation scope."""


class Span(StrEnum):
    """Values of `gen_ai.operation.name`, and prefixes of span names."""

    WORKFLOW = "invoke_workflow"
    """A whole tree, above its root."""
    AGENT = "invoke_agent"
    """A delegation."""
    TOOL = "execute_tool"
    """A delegation to an operation: `worker.read_file`."""
    CHAT = "chat"
    """A call of a language model."""


class Attribute(StrEnum):
    OPERATION = "gen_ai.operation.name"
    AGENT_ID = "gen_ai.agent.id"
    """The agent's name, which is unique in a project; the session is `remit.session_id`."""
    AGENT_NAME = "gen_ai.agent.name"
    TOOL_NAME = "gen_ai.tool.name"
    TOOL_CALL_ID = "gen_ai.tool.call.id"
    WORKFLOW_NAME = "gen_ai.workflow.name"
    CONVERSATION = "gen_ai.conversation.id"
    """The caller's name of the conversation, else the tree."""
    PROVIDER = "gen_ai.provider.name"
    MODEL = "gen_ai.request.model"
    INPUT_TOKENS = "gen_ai.usage.input_tokens"
    OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
    TOKEN_TYPE = "gen_ai.token.type"
    ERROR = "error.type"
    SESSION = "remit.session_id"
    ROOT = "remit.root_id"
    PARENT = "remit.parent_id"
    DEPTH = "remit.depth"
    PATH = "remit.path"
    STATE = "remit.state"
    KIND = "remit.kind"
    """Kind of the agent."""
    COMMAND = "remit.command"
    TASK = "remit.task_number"
    PRIORITY = "remit.priority"
    TOKENS = "remit.tokens"
    COST = "remit.cost"
    PRINCIPAL = "remit.principal"
    DOOR = "remit.door"
    ARGUMENTS = "gen_ai.tool.call.arguments"
    """Only with `signals.content`, like the next two."""
    RESULT = "gen_ai.tool.call.result"
    SUMMARY = "remit.summary"

    __hash__ = str.__hash__  # the hash of an enumeration is slow, and dozens are needed for every span


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, eq=False)
class Instrument:
    """An instrument; each exists once and is hashed by identity, because it is looked up for every delegation."""

    name: str
    kind: Kind
    words: str
    unit: str = ""
    """In OpenTelemetry notation: `s`, `{token}`. Not `1` for shares: Prometheus would make it part of the name."""
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


ENDINGS = tuple(str(state) for state in State if state not in LIVE)
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, LATENCY_P99.above or 30.0, 60.0, 120.0, 300.0, 600.0,
           1800.0, 3600.0, 7200.0, 14400.0)  # fmt: skip
"""Includes the alert threshold, so that it is exact there."""
MODEL_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
MODEL_TOKENS = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0, 67108864.0)
"""These two as the conventions recommend."""


ENDED = Instrument(TOTAL.name, Kind.COUNTER, "Delegations that ended, by state", labels=("target", "operation", "state", "principal"))
STARTED = Instrument("delegation.started", Kind.COUNTER, "Delegations whose agent was started", labels=("target", "operation"))
RUNNING = Instrument("delegation.running", Kind.GAUGE, "Delegations running now", labels=("target",))
QUEUED = Instrument("delegation.queued", Kind.GAUGE, "Delegations waiting for a slot now", labels=("target",))
LATENCY = Instrument(
    "delegation.latency", Kind.HISTOGRAM, "From the request to the outcome, without refused and cancelled ones", "s",
    ("target", "operation"), SECONDS,
)  # fmt: skip
TOKENS = Instrument("delegation.tokens", Kind.COUNTER, "Tokens drawn from budgets", "{token}", ("target", "operation"))
COST = Instrument("delegation.cost", Kind.COUNTER, "Money drawn from budgets", labels=("target", "operation"))
FAILED_START = Instrument(
    FAILED_STARTS.name, Kind.COUNTER, "Delegations whose agent could not be started or reached", labels=("target", "operation"),
)  # fmt: skip
VISITS = Instrument("door.requests", Kind.COUNTER, "Requests at the APIs; code: why refused", labels=("door", "code"))
MODEL_LABELS = (str(Attribute.OPERATION), str(Attribute.PROVIDER), str(Attribute.MODEL), str(Attribute.ERROR))
MODEL_DURATION = Instrument(
    "gen_ai.client.operation.duration", Kind.HISTOGRAM, "Of questions to language models", "s", MODEL_LABELS, MODEL_SECONDS
)
MODEL_USAGE = Instrument(
    "gen_ai.client.token.usage", Kind.HISTOGRAM, "Tokens of questions to language models", "{token}",
    (*MODEL_LABELS[:-1], str(Attribute.TOKEN_TYPE)), MODEL_TOKENS,
)  # fmt: skip
INSTRUMENTS = (ENDED, STARTED, RUNNING, QUEUED, LATENCY, TOKENS, COST, FAILED_START, VISITS, MODEL_DURATION, MODEL_USAGE)
METRIC_EVENTS = (
    LifecycleKind.STARTED, LifecycleKind.COMPLETED, LifecycleKind.FAILED, LifecycleKind.ADMITTED, LifecycleKind.TURNED_AWAY,
)  # fmt: skip
Find = Callable[[str], AgentPort | None]
"""An agent by its name."""
Live = Callable[[], Mapping[str, LocalRun]]
"""Live delegations of this process, by session."""
