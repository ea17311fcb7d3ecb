"""The declaration of an agent, and descriptions of its parameters.

An `AgentPort` executes it (see `ports`)."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from remit.core.delegation import ROOT_CALLER
from remit.core.errors import Misused
from remit.core.policy import Effect, Fact

COMPOSE_TARGET = "compose"
"""The target that runs several delegations as one."""
FLOW = "flow"
"""The target whose operations are the flows of a project."""
BUILTIN_TARGETS = ("worker", "researcher", "coder", COMPOSE_TARGET)
"""Built-in targets; the setting `builtin_agents` can omit them."""
ROLES = (
    "researcher", "planner", "implementer", "task-executor", "reviewer", "error-diagnostics-agent", "lean-research-agent",
    "lean-implementation-agent", "web-research-specialist", "atomic-task-numberer",
    "meta-builder",
)  # fmt: skip
"""The roles of the board, which are agents too; `builtin_agents` can omit them with `ROLES_GROUP`."""
ROLES_GROUP = "roles"
ASSISTANT = "assistant"
"""The language model whose only tool is `delegate`; `builtin_agents` can omit it."""
GROUP = "group"
"""The kind of an agent that hands its work to one of its members."""
RESULTS = "results"
"""The target through which an agent reads results that were shortened for it."""
_ROLE = "remit.agents.roles"
_BUILT_INS = ("remit.builtin.", _ROLE)
_REQUIREMENT = r"(mcp|tool):[^\s/:]+"
LONGEST_NAME = 128


AGENT_FOLDERS = (".remit/agents", ".claude/agents", ".opencode/agent", ".opencode/agents")
"""Folders of agent files. For two agents of one name, the settings take precedence, then these in order."""
NOT_APPROVED = "not approved"
"""The kind of a declared agent that no person approved: known by name, never run."""


def must_not_be_reserved(name: str) -> None:
    """Raise `Misused` for the name of a built-in target or operation, and for the name that policy rules use for the person. Roles may be
    replaced."""
    if name.partition(".")[0].casefold() in (*BUILTIN_TARGETS, FLOW, ASSISTANT, RESULTS, ROOT_CALLER) and name not in ROLES:
        raise Misused(f"name: {name!r} comes with remit, and no file of a project can redefine it. Give the agent another name.")


def agent_name(name: str) -> str:
    """Return `name` if it is valid for an agent."""
    name = unicodedata.normalize("NFC", name)
    if not name or not all(part and all(c.isalnum() or c in "_-" for c in part) for part in name.split(".")):
        raise Misused(f"{name!r:.200} is not a name for an agent.", advice="Use letters, digits, - and _, with dots between parts.")
    if len(name) > LONGEST_NAME:
        raise Misused(f"{name[:60]!r}… is not a name for an agent: it has {len(name)} characters, {LONGEST_NAME} are the most.")
    return name


class Isolation(StrEnum):
    INLINE = "inline"
    """An async function on the event loop: fastest, trusted, stopped only cooperatively."""
    THREAD = "thread"
    """A sync function on a thread: abandoned at its deadline."""
    PROCESS = "process"
    """Its own session and process group, killed with all its descendants."""


class Answers(StrEnum):
    VALUE = "value"
    """Its return value is the data of the return."""
    RETURN = "return"
    """Its answer is parsed as a return; a faulty answer is sent back once with its faults."""


class WorkspaceKind(StrEnum):
    SHARED = "shared"
    """It may write anywhere in the project; after a timeout changed files are searched there."""
    SCRATCH = "scratch"
    """It writes only in its scratch folder."""
    NONE = "none"
    """It writes no files."""
    WORKTREE = "worktree"
    """Its own git worktree: its changes are a diff, merged only on request."""

    @classmethod
    def _missing_(cls, value: object) -> None:
        if value == "copy":
            raise Misused('workspace = "copy" was removed: write "worktree" (it needs a git checkout with a commit) or "scratch".')


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """The declaration of an agent."""

    name: str
    description: str = ""
    timeout_seconds: float | None = None
    """Default timeout; None: the setting for its name."""
    idle_seconds: float | None = None
    isolation: Isolation = Isolation.INLINE
    answers: Answers = Answers.VALUE
    workspace: WorkspaceKind = WorkspaceKind.SHARED
    resumable: bool = False
    """Whether it may run again from its start after a crash; finished children do not run again."""
    requires_artifacts: bool = False
    """Whether `completed` requires at least one artifact written since the start."""
    retries: int = 0
    """How often it may run again after a crash or while unavailable. Set it only for agents that are safe to repeat."""
    slots: int | None = None
    """Maximum parallel runs; None: no limit of its own."""
    parameters_schema: dict[str, Any] = field(default_factory=dict)
    """JSON schema of its parameters."""
    merge: bool | Literal["queue"] = False
    """With workspace `worktree`: its changes are merged into the project when it completes; "queue": by the merge queue, if the merged tree
    is accepted."""
    kind: str = "function"
    """How it is executed: function, command, acp, claude, codex, opencode, model, or a profile on one of them."""
    output_schema: Mapping[str, Any] | None = None
    """JSON schema of the data in a `completed` return; None: any data."""
    languages: tuple[str, ...] = ()
    """Task languages it handles. Empty: any."""
    effects: tuple[Effect, ...] = ()
    """Its effects, which policy rules can name."""
    acts_on: Mapping[str, Fact] = field(default_factory=dict)
    """Parameters that policy rules can use, and their meaning."""
    acts_for_caller: bool = False
    """Whether it delegates on behalf of its caller: its children take its place in depth and path, and the policy sees its caller as
    theirs. Only for built-in agents that pass on what their caller requested (composition, groups, hedging, best of n)."""
    requires: tuple[str, ...] = ()
    """Requirements: `tool:rg` is a program on PATH, `mcp:NAME` an MCP server of the settings."""
    spread: bool = False
    """As a child it is given to any worker of its task queue, even if its caller's worker could run it. For engines with workers."""
    source: str = ""
    """Where it was declared: a module or a file."""
    cache_seconds: float | None = None
    """How long its completed results may be reused; None: never, unless a caller asks for it."""
    reads: tuple[str, ...] = ()
    """Parameters that name the files its result depends on; empty: those that `acts_on` declares as paths."""
    fingerprint: str = ""
    """Digest of the code or declaration, of an agent that only reads."""

    def __post_init__(self) -> None:
        """Validate limits, also of declarations from other processes: a deadline that is not a number would break the order of all
        deadlines."""
        for option, seconds in (("timeout", self.timeout_seconds), ("idle", self.idle_seconds)):
            if seconds is not None and (
                isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < float("inf")
            ):
                raise Misused(f"{option} must be a positive number of seconds, not {seconds!r}.")
        for option, value, least in (("slots", self.slots, 1), ("retries", self.retries, 0)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise Misused(f"{option} must be a whole number of at least {least}, not {value!r}.")
        if self.requires and (fault := requirement_fault(self.requires)):
            raise Misused(f"requires: {fault}.")
        if self.cache_seconds is not None and not only_reads(self):
            raise not_cacheable(self)


def requirement_fault(requires: Sequence[str]) -> str:
    """The fault of a list of requirements; empty if valid."""
    wrong = next((one for one in requires if not re.fullmatch(_REQUIREMENT, one)), None)
    return "" if wrong is None else f"{wrong!r:.60} is neither tool:NAME, a program on PATH, nor mcp:NAME, an MCP server of the settings"


_READING = frozenset({Effect.READ, Effect.NETWORK})
_CHANGING = frozenset({Effect.WRITE, Effect.DELETE, Effect.EXECUTE})
_ELSEWHERE = frozenset({"mcp", "a2a"})
"""Kinds that run in another program, which declares no effects here."""


def only_reads(spec: AgentSpec) -> bool:
    """Whether it declares that it changes nothing, so that its result may be reused. Unknown for tools of an MCP server."""
    return bool(spec.effects) and _READING.issuperset(spec.effects) and not spec.merge and spec.kind != "mcp"


def works_apart(spec: AgentSpec) -> bool:
    """Whether a second parallel run is safe because it writes only to its own folder. Not for agents that act through others or elsewhere:
    they have no folder here and may change anything."""
    is_known = not spec.acts_for_caller and spec.kind not in _ELSEWHERE
    return is_known and spec.workspace is not WorkspaceKind.SHARED and not spec.merge


def not_cacheable(spec: AgentSpec) -> Misused:
    return Misused(
        f"{spec.name}: cache requires an agent that only reads, and it does not declare that.",
        advice='Declare effects=("read",), or leave cache out.',
    )


def may_write(spec: AgentSpec) -> bool:
    """Whether it may change project files itself. A model and a composition act through delegations, which are checked one by one."""
    if spec.merge or not _CHANGING.isdisjoint(spec.effects):
        return True
    return not spec.effects and spec.workspace is WorkspaceKind.SHARED and spec.kind != "model" and not spec.acts_for_caller


def is_built_in(spec: AgentSpec) -> bool:
    """Whether it comes with remit. Derived from its source, so that every process agrees."""
    return spec.source.startswith(_BUILT_INS)


def is_helper(caller: AgentSpec, spec: AgentSpec) -> bool:
    """Whether a call is part of a built-in agent: remit's own code calls an operation of a built-in target. Such a call takes no depth. The
    assistant, and roles executed by a model, a program or a project agent, are not remit's own code."""
    if not caller.source.startswith(_BUILT_INS) or caller.kind != "function" or caller.name == ASSISTANT:
        return False
    target, dot, _ = spec.name.partition(".")
    return bool(dot) and target in BUILTIN_TARGETS and is_built_in(spec)


_OPERATIONS = frozenset({"function", "mcp", "remote", NOT_APPROVED})
"""Kinds of agents that can be operations of a target: functions, tools of an MCP server, operations of a registered agent."""


def is_operation(spec: AgentSpec, target: str, named: AgentSpec | None) -> bool:
    """Whether an agent whose name begins with `target` is an operation of it. `named`: the agent that has the name `target` itself.

    An agent of a file or table is an operation of nothing: a project file chooses its name, and could extend what a person granted."""
    if target in (*BUILTIN_TARGETS, FLOW, RESULTS):
        return True
    return spec.kind in _OPERATIONS and (named is None or _origin(named) == _origin(spec))


def _origin(spec: AgentSpec) -> str:
    """Of a function its module or file."""
    return spec.source.rpartition(":")[0] if spec.kind == "function" else spec.source


def is_role(spec: AgentSpec) -> bool:
    """Whether it is a built-in role, whatever executes it; a replaced role belongs to the project."""
    return spec.source.startswith(_ROLE)


def rank(spec: AgentSpec) -> int:
    """Order of listing: the project's agents, built-in agents, roles."""
    return is_built_in(spec) + is_role(spec)


def type_words(schema: Mapping[str, Any]) -> str:
    """A short description of a JSON schema."""
    if isinstance(schema.get("type"), list):
        return " or ".join(map(str, schema["type"]))
    if "anyOf" in schema:
        return " or ".join(type_words(one) for one in schema["anyOf"] if isinstance(one, Mapping)) or "anything"
    if "enum" in schema:
        return " or ".join(repr(value) for value in schema["enum"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if schema.get("type") == "array":
        items = schema.get("items")
        return f"list of {type_words(items if isinstance(items, Mapping) else {})}"
    return str(schema.get("type", "anything"))
