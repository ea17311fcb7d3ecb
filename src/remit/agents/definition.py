"""The declaration of an agent that is not a Python function: its keys, their validation, and the resulting definition.

Read from a table of the settings or the front matter of an agent file; executed by `agents.executors`."""

import difflib
import hashlib
import re
import shlex
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import to_json

from remit.agents.placeholders import code_fault, parameters_in, places_in
from remit.core.agents import AgentSpec, Answers, Isolation, WorkspaceKind, requirement_fault
from remit.core.cache import cache_seconds
from remit.core.choice import By
from remit.core.errors import Misused
from remit.core.parameters import named_parameters
from remit.core.policy import Effect
from remit.system.packages import offered


class Kind(StrEnum):
    """Built-in kinds. `DefinitionTable` checks the keys and parameters of each; `definition_of` sets isolation and answers."""

    COMMAND = "command"
    """Any command: prompt in, text out."""
    ACP = "acp"
    """A command that speaks the Agent Client Protocol on its standard input and output."""
    CLAUDE = "claude"
    CODEX = "codex"
    OPENCODE = "opencode"
    MODEL = "model"
    """A language model that acts only by delegating."""
    A2A = "a2a"
    """A remote agent that speaks A2A."""
    MCP = "mcp"
    """An external MCP server: each of its tools is an agent, NAME.TOOL."""
    GROUP = "group"
    """Several agents of the directory, of which one is chosen."""
    PROFILE = "profile"
    """Instructions (an agent file) executed by another agent of the directory: `runs_on`."""


REMOTE_KINDS = (Kind.A2A,)
REMOVED_KINDS = {
    "grpc": 'grpc = "HOST:PORT" (kind = "grpc") was removed: reach another remit by a2a = "https://…", or let the other side register with '
    "`remit serve`",
}
"""Kinds of earlier versions, and what replaces them."""
EXECUTORS_GROUP = "remit.executors"
"""Entry points of packages that add kinds of agents."""


class PromptBy(StrEnum):
    STDIN = "stdin"
    ARGUMENT = "argument"
    FILE = "file"


NO_SIGNAL = "none"
OURS = "REMIT_"
"""Prefix of the variables that only remit sets."""
PROMPT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"task": {"type": "string", "description": "The task, in words.", "minLength": 1}},
    "required": ["task"],
    "additionalProperties": True,
}
"""Parameters of every prompted agent: its task, and any others, which are added to the prompt."""
COMMA = re.compile(r",(?![^()]*\))")
"""Commas between names, but not inside `Task(one, other)`."""

Text = Annotated[str, Field(strict=True)]
Words = tuple[Text, ...]


def _no_switch(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("write a number, not true or false")  # pydantic would read them as 1 and 0
    return value


Seconds = Annotated[float, Field(gt=0, lt=float("inf")), BeforeValidator(_no_switch)]


def _split_names(value: Any) -> Any:
    return [name.strip() for name in COMMA.split(value) if name.strip()] if isinstance(value, str) else value


Names = Annotated[
    tuple[Annotated[str, Field(strict=True, min_length=1, max_length=200)], ...], Field(max_length=100), BeforeValidator(_split_names)
]
"""Names separated by commas, or a list of names."""


def _cache(value: Any) -> float | None:
    if value is None:
        return None
    try:
        return cache_seconds(value)
    except Misused as fault:
        raise ValueError(fault.message.removeprefix("cache ")) from None


def _split_words(command: Any) -> Any:
    try:
        return tuple(shlex.split(command)) if isinstance(command, str) else command
    except ValueError as error:
        raise ValueError(f"it cannot be split as a shell would ({error}); write it as a list of words") from None


def _known_requirements(requires: Words) -> Words:
    if fault := requirement_fault(requires):
        raise ValueError(fault)
    return requires


def _known_kind(kind: Any) -> Any:
    if kind is None or kind in tuple(Kind):
        return kind and Kind(kind)
    if kind in REMOVED_KINDS:
        raise ValueError(REMOVED_KINDS[kind])
    added = [entry.name for entry in offered(EXECUTORS_GROUP)]
    if kind not in added:
        known = (*map(str, Kind), *added)
        close = difflib.get_close_matches(str(kind), known, n=1)
        raise ValueError(f"unknown kind {kind!r:.60}" + (f" (did you mean {close[0]}?)" if close else f"; there are {', '.join(known)}"))
    return kind


def _known_signal(name: str) -> str:
    if name != NO_SIGNAL and name not in signal.Signals.__members__:
        raise ValueError(f"{name!r} is not a signal; write e.g. SIGTERM, SIGINT, SIGUSR1, or none")
    return name


def _no_option(model: Words) -> Words:
    if option := next((name for name in model if name.startswith("-")), None):
        raise ValueError(f"{option!r} is not a valid model: programs would parse it as an option")
    return model


def _valid_variables(environment: dict[str, str]) -> dict[str, str]:
    if taken := sorted(name for name in environment if name.startswith(OURS)):
        raise ValueError(f"{', '.join(taken)}: variables that begin with {OURS} are set by remit alone")
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name + value:
            raise ValueError(f"{name!r} is not a valid environment variable")
    return environment


def _valid_hosts(hosts: Words) -> Words:
    if hosts:
        from remit.agents.containment.hosts import HostList

        HostList(hosts)
    return hosts


def _valid_folder(folder: str) -> str:
    if not folder or "\0" in folder:
        raise ValueError(f"{folder!r} is not a folder; write one inside the workspace")
    return folder


CommandLine = Annotated[Words, BeforeValidator(_split_words)]
Contain = Annotated[bool, Field(strict=True)] | Literal["auto"]
Short = Annotated[str, Field(strict=True, min_length=1, max_length=2000)]

MODELS_ALONE = ("tools", "requests", "temperature")
"""Keys that only a language model uses."""
_STARTED = (
    "command", "prompt", "folder", "pass_environment", "environment", "hand_in", "options", "allow", "delegates", "runs_on", "built_in",
    "contain", "hosts",
)  # fmt: skip
"""Keys only for agents started as a process, and for profiles on them."""
_OF_GROUPS = ("group", "by", "hedge")
_OF_REMOTES = ("a2a", "remote", "token_variable", "ca_file", "parameters")
_STARTED_SERVER = ("folder", "environment", "pass_environment", "contain", "hosts")
_REACHED_SERVER = ("token_variable", "ca_file")
_OF_SERVERS = ("kind", "mcp", "description", "tools", "timeout", "idle", "slots", "retries", "requires", "workspace")
_INSTRUCTED = (*_STARTED, "instructions", "model", "merge")
_NOT_OF: Mapping[str, tuple[str, ...]] = {
    Kind.GROUP: (*_INSTRUCTED, *MODELS_ALONE, *_OF_REMOTES, "mcp", "workspace", "effects", "cache"),
    Kind.MODEL: (*_STARTED, *_OF_GROUPS, *_OF_REMOTES, "mcp"),
    Kind.PROFILE: (*_OF_GROUPS, *_OF_REMOTES, "mcp"),
    Kind.ACP: (*MODELS_ALONE, *_OF_GROUPS, *_OF_REMOTES, "mcp", "model"),
    **dict.fromkeys(REMOTE_KINDS, (*_INSTRUCTED, *MODELS_ALONE, *_OF_GROUPS, "mcp")),
}
"""Keys that a kind has no use for; of a kind that is not listed here those of `_NOT_OF_PROGRAMS`."""
_NOT_OF_PROGRAMS = (*MODELS_ALONE, *_OF_GROUPS, *_OF_REMOTES, "mcp")
_WITHOUT_FOLDER = (WorkspaceKind.SHARED, WorkspaceKind.NONE)


class ServerAddress(BaseModel):
    """`mcp = {…}`: how to start or reach an MCP server."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    command: CommandLine | None = None
    url: Short | None = None
    headers: dict[str, Text] = {}
    environment: dict[str, Text] = {}
    adopted: Short | None = None
    """Its entry in `.mcp.json`."""

    @model_validator(mode="before")
    @classmethod
    def _entry(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f".mcp.json of this project has no server {value!r:.100}; remit.toml and pyproject.toml can adopt its entries")
        if isinstance(value, Mapping) and value.get("type") == "sse":
            raise ValueError("the transport sse is not supported; use a server that speaks streamable HTTP")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> "ServerAddress":
        if bool(self.command) == bool(self.url):
            raise ValueError('write either {command = ["program", "argument"]} or {url = "https://…"}')
        if self.headers if self.url is None else self.environment:
            raise ValueError("headers are for a server with a url, environment for one that is started here")
        return self


class Hedge(BaseModel):
    """`hedge = {after = "p90", extra = 0.1}`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    after: Annotated[str, Field(pattern=r"^p([1-9][0-9])$")] = "p90"
    """Share of earlier runs that were faster, after which a second run starts."""
    extra: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False), BeforeValidator(_no_switch)] = 0.1
    """Maximum second runs per first run."""


class DefinitionTable(BaseModel):
    """An agent as written in a file."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    kind: Annotated[Kind | str | None, BeforeValidator(_known_kind)] = None
    description: Text = ""
    command: CommandLine | None = None
    prompt: PromptBy = PromptBy.STDIN
    folder: Annotated[Text, AfterValidator(_valid_folder)] = "."
    pass_environment: Words = ()
    environment: Annotated[dict[str, Text], AfterValidator(_valid_variables)] = {}
    instructions: Text = ""
    model: Annotated[Names, AfterValidator(_no_option)] | None = None
    allow: Words = ()
    delegates: bool = False
    hand_in: Annotated[Text, AfterValidator(_known_signal)] = "SIGTERM"
    options: Words = ()
    contain: Contain = False
    hosts: Annotated[Words, AfterValidator(_valid_hosts)] = ()
    runs_on: Text | None = None
    built_in: Text | None = None
    timeout: Seconds | None = None
    idle: Seconds | None = None
    isolation: Isolation = Isolation.PROCESS
    answers: Answers = Answers.RETURN
    workspace: WorkspaceKind = WorkspaceKind.SHARED
    merge: bool | Literal["queue"] = False
    resumable: bool = False
    requires_artifacts: bool = False
    spread: bool = False
    retries: Annotated[int, Field(ge=0, le=100, strict=True)] = 0
    slots: Annotated[int, Field(ge=1, strict=True)] | None = None
    tools: Names | None = None
    requests: Annotated[int, Field(ge=1, le=10_000, strict=True)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False), BeforeValidator(_no_switch)] | None = None
    output_schema: dict[str, Any] | None = None
    languages: Names = ()
    group: Names = ()
    by: By = By.SUCCESS
    hedge: Hedge | None = None
    effects: tuple[Effect, ...] = ()
    cache: Annotated[float | None, BeforeValidator(_cache)] = None
    reads: Names = ()
    a2a: Short | None = None
    remote: Short | None = None
    token_variable: Short | None = None
    ca_file: Short | None = None
    parameters: dict[str, Any] | None = None
    mcp: ServerAddress | None = None
    requires: Annotated[Names, AfterValidator(_known_requirements)] = ()

    @property
    def meant_kind(self) -> Kind | str:
        if self.kind is not None:
            return self.kind
        named = (Kind.GROUP, Kind.MCP, *REMOTE_KINDS, Kind.COMMAND)
        return next((kind for kind in named if kind in self.model_fields_set and getattr(self, kind) is not None), Kind.PROFILE)

    @model_validator(mode="after")
    def _fits(self) -> "DefinitionTable":
        kind = self.meant_kind
        if (fault := next(self._faults(kind), None)) is not None:
            raise ValueError(fault)
        if kind is Kind.COMMAND:
            self._check_placeholders()
        return self

    def _unused_keys(self, kind: str) -> tuple[str, ...]:
        if kind is not Kind.MCP or self.mcp is None:
            return _NOT_OF.get(kind, _NOT_OF_PROGRAMS)
        used = (*_OF_SERVERS, *(_STARTED_SERVER if self.mcp.url is None else _REACHED_SERVER))
        return tuple(key for key in DefinitionTable.model_fields if key not in used)

    def _faults(self, kind: str) -> Iterator[str]:
        """Keys and values that do not fit the kind, or each other."""
        unused = [key for key in self._unused_keys(kind) if key in self.model_fields_set]
        yield from (f"{key}: an agent of this kind ({kind}) has no use for it" for key in unused)
        if kind is Kind.MCP and self.mcp is None:
            yield 'kind = "mcp" needs mcp = {command = […]} or mcp = {url = "…"}'
        if kind in REMOTE_KINDS and getattr(self, kind) is None:
            yield f'kind = "{kind}" needs its address: {kind} = "…"'
        if kind in (Kind.COMMAND, Kind.ACP) and not self.command:
            yield f'kind = "{kind}" needs a command'
        if kind is Kind.GROUP and (not self.group or len(set(self.group)) != len(self.group)):
            yield "group: name its members, each once"
        if kind not in (Kind.PROFILE, Kind.MCP, Kind.MODEL) and len(self.model or ()) > 1:
            yield "model: only a language model accepts several; name one"
        if kind in (Kind.MCP, *REMOTE_KINDS) and self.workspace not in _WITHOUT_FOLDER:
            yield f"workspace: it has no folder of its own here, so no {self.workspace}; write shared or none"
        if self.cache is not None and not {Effect.READ, Effect.NETWORK}.issuperset(self.effects or (Effect.WRITE,)):
            yield 'cache: cache requires an agent that only reads; declare effects = ["read"], or leave it out'
        if "isolation" in self.model_fields_set:
            where = Isolation.INLINE if kind in (Kind.MODEL, Kind.GROUP, *REMOTE_KINDS) else Isolation.PROCESS
            yield from () if self.isolation is where else (f"isolation: it is always {where} here: leave it out",)
        if self.hosts and not self.contain and kind is not Kind.PROFILE:
            yield "hosts: requires contain = true; set it, or leave hosts out"
        if self.merge and self.workspace is not WorkspaceKind.WORKTREE:
            yield 'merge needs workspace = "worktree"'

    def _check_placeholders(self) -> None:
        words, places = self.words, set(places_in(self.words))
        if self.prompt is PromptBy.ARGUMENT and "prompt" not in places:
            words = (*words, "{prompt}")
        fault = code_fault(words, prompt_is_input=self.prompt is PromptBy.STDIN and not {"prompt", "prompt_file"} & places)
        if fault is not None:
            raise ValueError(
                f'command: {fault}. Pass it as a further argument, and use "$1" in the script: '
                """["sh", "-c", 'grep -c "$1" notes.txt', "sh", "{word}"]; double other braces: {{print}}"""
            )

    @property
    def words(self) -> Words:
        return self.command or ()

    @property
    def parameters_schema(self) -> dict[str, Any]:
        """A task as text; for a command its placeholders; for a remote agent and a kind of a package its own declaration."""
        if not isinstance(self.meant_kind, Kind):
            return _schema_of_package(self.meant_kind)
        if self.meant_kind in (*REMOTE_KINDS, Kind.GROUP, Kind.MCP):
            return self.parameters or {"type": "object", "properties": {}, "additionalProperties": True}
        named = parameters_in(self.words) if self.meant_kind is Kind.COMMAND else ()
        if not named:
            return PROMPT_SCHEMA
        # A command with a prompt requires a task; any other may use only its parameters.
        is_prompted = "prompt" in self.model_fields_set or {"prompt", "prompt_file"} & set(places_in(self.words))
        filled_in = {name: {"description": f"Replaces {{{name}}} in its command."} for name in named if name != "task"}
        required = [*(["task"] if is_prompted or "task" in named else []), *filled_in]
        return {**PROMPT_SCHEMA, "properties": {**PROMPT_SCHEMA["properties"], **filled_in}, "required": required}


def packaged_kind(kind: str) -> Any:
    """The executor of a kind that a package adds: called with a `Definition` and `ExecutorDeps`, gives an `AgentPort`."""
    return next(entry for entry in offered(EXECUTORS_GROUP) if entry.name == kind).load()


def _schema_of_package(kind: str) -> dict[str, Any]:
    try:
        schema: dict[str, Any] = getattr(packaged_kind(kind), "parameters_schema", PROMPT_SCHEMA)
    except Exception:  # noqa: BLE001 - code of a package; the directory reports its fault when it makes the executor
        return PROMPT_SCHEMA
    return schema


def _faults_of(error: ValidationError) -> list[str]:
    faults = []
    for fault in error.errors(include_url=False):
        where = ".".join(str(part) for part in fault["loc"])
        words = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            close = difflib.get_close_matches(where, DefinitionTable.model_fields, n=1)
            words = "there is no such key" + (f" (did you mean {close[0]}?)" if close else "")
        elif fault["type"] == "tuple_type" and len(fault["loc"]) == 1:
            words = "write one line of text, or a list"
        faults.append(f"{where}: {words}" if where else words)
    return faults


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTool:
    """One tool of an MCP server, or the server while its tools are unknown."""

    server: str
    key: str
    """Key of its tool list (`system.mcp_servers`)."""
    tool: str = ""
    """The server's name of the tool; empty: the server itself."""
    digest: str = ""
    """Digest of the tool as approved; empty: used as offered."""
    headers: Mapping[str, str] = field(default_factory=dict)
    fault: str = ""
    """Why its tools are unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """One agent as written, not validated."""

    name: str
    table: Mapping[str, Any]
    """Keys of `DefinitionTable`."""
    source: str
    tools: tuple[str, ...] | None = None
    """Tools of its executor that it keeps; None: all."""
    without: tuple[str, ...] = ()
    is_file: bool = False
    """Whether it has a file of its own, and is not a table of the settings."""
    is_guest: bool = False
    """Whether it is a file of another tool, which cannot extend the rights of its executor."""


class Definition(DefinitionTable):
    """A validated declaration: the keys of the table (docs/reference/agents.md explains them), and what follows from them."""

    spec: AgentSpec
    kind: Kind | str
    command: tuple[str, ...] = ()
    model: str | None = None  # type: ignore[assignment]
    """Model of a coding agent."""
    models: tuple[str, ...] = ()
    """For a language model: the next one after a failure; empty: the project's."""
    within: tuple[str, ...] | None = None
    """For a profile on a model agent: the `tools` of that agent, which its own never exceed."""
    mcp: ServerTool | None = None  # type: ignore[assignment]
    """For a tool of an MCP server."""
    address: str = ""
    """Of a remote agent: its URL."""
    not_approved: str = ""
    """For a profile without an executor: the unapproved setting that could name one."""
    fault: str = ""
    """For a profile without an executor: what is wrong with the declaration of the agent that could be it."""

    @property
    def name(self) -> str:
        return self.spec.name

    def having(self, **changed: Any) -> "Definition":
        """The same with other values."""
        return self.model_copy(update=changed)


REMOVED_KEYS = {"operations": "it was removed: bind the command with [[routing.COMMAND]] in remit.toml, and this key has no effect."}
"""Keys of earlier versions, and what replaces them."""
_SAME_OF_SPEC = (
    "merge", "resumable", "requires_artifacts", "retries", "slots", "parameters_schema", "output_schema", "languages",
    "requires", "reads", "spread",
)  # fmt: skip


def definition_of(name: str, table: Mapping[str, Any], *, source: str) -> Definition:
    """The definition of a table. Raises `Misused` with each fault and its place. Tools of an MCP server become agents once they are known
    (`agents.mcp.tool_agents`)."""
    if "grpc" in table:
        raise Misused(f"{source}: {REMOVED_KINDS['grpc']}.")
    try:
        said = DefinitionTable.model_validate({key: value for key, value in table.items() if key not in REMOVED_KEYS})
    except ValidationError as error:
        raise Misused(
            f"{source}: {'; '.join(_faults_of(error))}.",
            advice="`remit agents --help` and docs/reference/agents.md say what an agent declares.",
        ) from None
    kind, server = said.meant_kind, said.mcp or ServerAddress.model_construct()
    is_remote = kind in REMOTE_KINDS or server.url is not None
    has_values = is_remote or kind in (Kind.MCP, Kind.GROUP)
    described: dict[str, str] = {
        Kind.GROUP: f"One of {', '.join(said.group)}, chosen by {said.by}.",
        Kind.MCP: f"MCP server {server.adopted or name}.",
    }
    spec = AgentSpec(
        name=name,
        kind=str(kind),
        source=source,
        description=said.description or described.get(kind, ""),
        timeout_seconds=said.timeout,
        idle_seconds=said.idle,
        isolation=Isolation.INLINE if is_remote or kind in (Kind.MODEL, Kind.GROUP) else Isolation.PROCESS,
        answers=Answers.VALUE if has_values and "answers" not in said.model_fields_set else said.answers,
        workspace=WorkspaceKind.NONE if is_remote or kind is Kind.GROUP else said.workspace,
        effects=(Effect.NETWORK,) if server.url is not None else said.effects,
        acts_for_caller=kind is Kind.GROUP,
        cache_seconds=said.cache,
        fingerprint=hashlib.sha256(to_json(dict(table), fallback=str)).hexdigest()[:32] if said.effects else "",
        **{key: getattr(said, key) for key in _SAME_OF_SPEC},
    )
    models = said.model or ()
    own = {
        "spec": spec,
        "kind": kind,
        "command": said.words or server.command or (),
        "environment": {**server.environment, **said.environment},
        "model": models[0] if models and kind is not Kind.MODEL else None,
        "models": models if kind is Kind.MODEL else (),
        "address": said.a2a or server.url or "",
        "mcp": None if said.mcp is None else ServerTool(server=name, key="", headers=server.headers),
    }
    return Definition.model_construct(**{**dict(said), **own})


def checked_task(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a prompted agent: its task as text, and any others."""
    task = parameters.get("task")
    if not isinstance(task, str) or not task.strip():
        fault = "task: it is required" if task is None else f"task must be text that says what to do, not {task!r:.60}"
        raise Misused(f"Parameters of {name}: {fault}.", code="INVALID_PARAMETERS", advice=f'Say what to do: {name} takes task="…".')
    return dict(parameters)


def checked_parameters(spec: AgentSpec, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters under the agent's own names, with all that its schema requires, and none that it excludes. Raises `Misused`."""
    named = named_parameters(spec.name, spec.parameters_schema, parameters)
    return checked_task(spec.name, named) if "task" in named else named
