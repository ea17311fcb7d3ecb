"""What is known about an agent before it is called: its declaration, and its parameters in words.

How it is carried out is an `AgentPort` (see `ports`).
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from remit.core.delegation import ROOT_CALLER
from remit.core.errors import Misused
from remit.core.policy import Effect, Fact

BUILTIN_TARGETS = ("worker", "researcher", "coder")
"""The targets that are there unless the setting `builtin_agents` leaves them out."""
ROLES = (
    "researcher", "planner", "implementer", "task-executor", "reviewer", "error-diagnostics-agent", "lean-research-agent",
    "lean-implementation-agent", "web-research-specialist", "git-workflow-manager", "status-sync-manager", "atomic-task-numberer",
    "meta-builder",
)  # fmt: skip
"""The roles of the board: agents too, there unless `builtin_agents` leaves out `ROLES_GROUP`."""
ROLES_GROUP = "roles"
ASSISTANT = "assistant"
"""The language model whose only tool is `delegate`, there unless `builtin_agents` leaves it out."""
RESULTS = "results"
"""The target by which an agent reads results that were shortened for it."""
_ROLE = "remit.agents.roles"
_BUILT_INS = ("remit.builtin.", _ROLE)
LONGEST_NAME = 128
_ALIKE = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU"})
"""Scripts whose letters look like one another's."""


NOT_APPROVED = "not approved"
"""The kind of an agent that a project declares and no person approved: it is known by name, and never runs."""


def must_not_be_reserved(name: str) -> None:
    """Raises `Misused` for the name of a target or operation that comes with remit, and for that by which rules know the person. Roles are
    there to be replaced."""
    if name.partition(".")[0].casefold() in (*BUILTIN_TARGETS, ASSISTANT, RESULTS, ROOT_CALLER) and name not in ROLES:
        raise Misused(f"name: {name!r} comes with remit, and no file of a project can redefine it. Give the agent another name.")


def agent_name(name: str) -> str:
    """`name`, if it can be one."""
    name = unicodedata.normalize("NFC", name)
    if not name or not all(part and all(c.isalnum() or c in "_-" for c in part) for part in name.split(".")):
        raise Misused(f"{name!r:.200} is not a name for an agent.", advice="Use letters, digits, - and _, with dots between parts.")
    if len(name) > LONGEST_NAME:
        raise Misused(f"{name[:60]!r}… is not a name for an agent: it has {len(name)} characters, {LONGEST_NAME} are the most.")
    if not name.isascii() and (alike := _looks_like(name)):
        raise Misused(f"{name!a} is not a name for an agent: {alike}.", advice="Write it in the letters of one script.")
    return name


def _looks_like(name: str) -> str:
    """Why it could be taken for another name by whoever reads it, people and models alike; empty: it could not."""
    if unicodedata.normalize("NFKC", name) != name:
        return f"it looks like {unicodedata.normalize('NFKC', name)!r}"
    scripts = {unicodedata.name(c, "").partition(" ")[0] for c in name if c.isalpha()} & _ALIKE
    return f"it mixes {' and '.join(sorted(one.capitalize() for one in scripts))} letters, which look alike" if len(scripts) > 1 else ""


class Isolation(StrEnum):
    INLINE = "inline"
    """An async function on the event loop: fastest, trusted, stopped only if it lets itself be."""
    THREAD = "thread"
    """A sync function on a thread: abandoned at its deadline, never waited for."""
    PROCESS = "process"
    """Its own session and process group, killed with all its descendants."""


class Answers(StrEnum):
    VALUE = "value"
    """What it hands back is the result: put into a return for it."""
    RETURN = "return"
    """What it hands back is to be read as a return: text goes through the receiving ladder, and it is asked once more if it is faulty."""


class WorkspaceKind(StrEnum):
    SHARED = "shared"
    """It may write anywhere in the project: changed files are looked for there at a timeout."""
    SCRATCH = "scratch"
    """It writes only in its scratch folder."""
    NONE = "none"
    """It writes no files."""
    WORKTREE = "worktree"
    """A git worktree of its own: what it changes is a diff, merged only when that is asked for."""
    COPY = "copy"
    """A copy of the project: what it changes is a diff, and nothing else is touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    name: str
    description: str = ""
    timeout_seconds: float | None = None
    """Its default timeout; None: the setting for its name."""
    idle_seconds: float | None = None
    isolation: Isolation = Isolation.INLINE
    answers: Answers = Answers.VALUE
    workspace: WorkspaceKind = WorkspaceKind.SHARED
    resumable: bool = False
    """After a crash it may be run again from its start; finished children are not run again."""
    requires_artifacts: bool = False
    """`completed` needs at least one artifact, written since the start."""
    retries: int = 0
    """How often it may be run again after it crashed or was unavailable: only for agents that declare it safe."""
    slots: int | None = None
    """How many of it may run at once; None: no limit of its own."""
    parameters_schema: dict[str, Any] = field(default_factory=dict)
    """JSON schema of its parameters."""
    merge: bool = False
    """With workspace `worktree`: its changes are merged into the project when it completed."""
    kind: str = "function"
    """What carries it out: function, command, acp, claude, codex, opencode, model, or a profile that runs on one of them."""
    output_schema: Mapping[str, Any] | None = None
    """JSON schema of the data that a `completed` return of it must hold; None: anything."""
    languages: tuple[str, ...] = ()
    """Which languages of tasks it is for; with `operations` they route tasks to it. None: any."""
    operations: tuple[str, ...] = ()
    """Which commands of the board it takes, of tasks in its languages."""
    effects: tuple[Effect, ...] = ()
    """What it does to the world: rules of the policy may name them."""
    acts_on: Mapping[str, Fact] = field(default_factory=dict)
    """Parameters that rules of the policy can use, and what each stands for."""
    source: str = ""
    """Where it was declared: a module or a file."""

    def __post_init__(self) -> None:
        """Also of those that another process declares: a deadline that is no number would put all others out of order."""
        for option, seconds in (("timeout", self.timeout_seconds), ("idle", self.idle_seconds)):
            if seconds is not None and not 0 < seconds < float("inf"):
                raise Misused(f"{option} must be a positive number of seconds, not {seconds!r}.")
        for option, value, least in (("slots", self.slots, 1), ("retries", self.retries, 0)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise Misused(f"{option} must be a whole number of at least {least}, not {value!r}.")


def is_built_in(spec: AgentSpec) -> bool:
    """Whether it comes with remit; told from where it was declared, so that it is the same in every process."""
    return spec.source.startswith(_BUILT_INS)


def is_role(spec: AgentSpec) -> bool:
    """Whether it is a built-in role, whatever executes it; one that a project replaced is the project's own."""
    return spec.source.startswith(_ROLE)


def rank(spec: AgentSpec) -> int:
    """In which order agents are listed: a project's own, those that come with remit, its roles."""
    return is_built_in(spec) + is_role(spec)


def type_words(schema: Mapping[str, Any]) -> str:
    """A JSON schema in a word or two."""
    if "anyOf" in schema:
        return " or ".join(type_words(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(repr(value) for value in schema["enum"])
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if schema.get("type") == "array":
        return f"list of {type_words(schema.get('items', {}))}"
    return str(schema.get("type", "anything"))
