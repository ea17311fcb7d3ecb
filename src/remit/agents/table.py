"""What may be said of an agent that is no Python function, and what each key must be: the form of `[agents.NAME]` and of `remit:`.

Judges one table by itself. `definition` makes a `Definition` of it; whom an agent may delegate to, which model is meant and who carries a
profile out depends on the project, and is decided elsewhere (`modelling`, `profiles`).
"""

import difflib
import re
import shlex
import signal
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from remit.agents.placeholders import parameters_in, places_in
from remit.agents.scripts import code_filled_in
from remit.core.agents import Answers, Isolation, Workspace


class Kind(StrEnum):
    COMMAND = "command"
    """Any command: prompt in, text out."""
    ACP = "acp"
    """A command that speaks the Agent Client Protocol on its standard input and output."""
    CLAUDE = "claude"
    CODEX = "codex"
    OPENCODE = "opencode"
    MODEL = "model"
    """A language model, asked in words; it acts on the world only by delegating."""
    GRPC = "grpc"
    """An agent of a remit elsewhere, or of anything else that speaks tasks.proto."""
    A2A = "a2a"
    """An agent elsewhere that speaks A2A."""
    PROFILE = "profile"
    """Instructions (an agent file) carried out by another agent of the directory: `runs_on`."""


ELSEWHERE = (Kind.GRPC, Kind.A2A)
"""Those that run in another process or on another machine, and are only asked from here."""


class PromptBy(StrEnum):
    STDIN = "stdin"
    ARGUMENT = "argument"
    FILE = "file"


NO_SIGNAL = "none"
OURS = "REMIT_"
"""What the names of the variables begin with that remit alone sets."""
PROMPT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"task": {"type": "string", "description": "What is to be done, in words.", "minLength": 1}},
    "required": ["task"],
    "additionalProperties": True,
}
"""What every prompted agent takes: its task, and whatever else its caller names; that is put into the prompt."""


Text = Annotated[str, Field(strict=True)]
Words = tuple[Text, ...]
Seconds = Annotated[float, Field(gt=0, lt=float("inf"))]


def _listed(value: Any) -> Any:
    """Names with commas between them, or a list of names."""
    return [name.strip() for name in COMMA.split(value) if name.strip()] if isinstance(value, str) else value


COMMA = re.compile(r",(?![^()]*\))")
"""Between names, but not inside of `Task(one, other)`."""
Names = Annotated[
    tuple[Annotated[str, Field(strict=True, min_length=1, max_length=200)], ...], Field(max_length=100), BeforeValidator(_listed)
]

MODELS_ALONE = ("tools", "requests", "temperature")
"""Keys that mean something to a language model only."""
_NOT_A_MODELS = {
    "command": "a model is asked, not started",
    "prompt": "a model is asked, not started",
    "folder": "a model is not started anywhere; what it delegates to works in its workspace",
    "pass_environment": "a model sees no variables",
    "environment": "a model sees no variables",
    "hand_in": "a model is sent no signals",
    "options": "a model is asked, not started",
    "allow": "what a model may delegate to stands in tools",
    "delegates": "to delegate is all that a model can do; to whom stands in tools",
    "runs_on": "a model is carried by nobody",
    "built_in": "a model is carried by nobody",
}
"""Keys that a model has no use for, and why."""
_THEIRS_ALONE = ("remote", "token_variable", "ca_file", "parameters")
"""Keys that mean something to an agent elsewhere only."""
_NOT_THEIRS = (
    "command", "prompt", "folder", "pass_environment", "environment", "instructions", "model", "allow", "delegates", "hand_in", "options",
    "runs_on", "built_in", "tools", "requests", "temperature", "merge",
)  # fmt: skip
"""Keys that one elsewhere has no use for: it is asked, not started, and what it does there is its own."""


class DefinitionTable(BaseModel):
    """An agent as it is written in a file."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    kind: Kind | None = None
    description: Text = ""
    command: Words | Text | None = None
    prompt: PromptBy = PromptBy.STDIN
    folder: Text = "."
    pass_environment: Words = ()
    environment: dict[str, Text] = {}
    instructions: Text = ""
    model: Names | None = None
    allow: Words = ()
    delegates: bool = False
    hand_in: Text = "SIGTERM"
    options: Words = ()
    runs_on: Text | None = None
    built_in: Text | None = None
    timeout: Seconds | None = None
    idle: Seconds | None = None
    isolation: Isolation = Isolation.PROCESS
    answers: Answers = Answers.RETURN
    workspace: Workspace = Workspace.SHARED
    merge: bool = False
    resumable: bool = False
    requires_artifacts: bool = False
    retries: Annotated[int, Field(ge=0, le=100, strict=True)] = 0
    slots: Annotated[int, Field(ge=1, strict=True)] | None = None
    tools: Names | None = None
    requests: Annotated[int, Field(ge=1, le=10_000, strict=True)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)] | None = None
    output_schema: dict[str, Any] | None = None
    languages: Names = ()
    operations: Names = ()
    grpc: Annotated[str, Field(strict=True, min_length=1, max_length=500)] | None = None
    a2a: Annotated[str, Field(strict=True, min_length=1, max_length=2000)] | None = None
    remote: Annotated[str, Field(strict=True, min_length=1, max_length=200)] | None = None
    token_variable: Annotated[str, Field(strict=True, min_length=1, max_length=200)] | None = None
    ca_file: Annotated[str, Field(strict=True, min_length=1, max_length=1000)] | None = None
    parameters: dict[str, Any] | None = None

    @field_validator("hand_in")
    @classmethod
    def _a_signal(cls, name: str) -> str:
        if name != NO_SIGNAL and name not in signal.Signals.__members__:
            raise ValueError(f"{name!r} is no signal; write e.g. SIGTERM, SIGINT, SIGUSR1, or none")
        return name

    @field_validator("command")
    @classmethod
    def _words(cls, command: Words | str | None) -> Words | None:
        if not isinstance(command, str):
            return command
        try:
            return tuple(shlex.split(command))
        except ValueError as error:
            raise ValueError(f"it cannot be taken apart as a shell would ({error}); write it as a list of words") from None

    @field_validator("model")
    @classmethod
    def _no_option(cls, model: Words | None) -> Words | None:
        for name in model or ():
            if name.startswith("-"):
                raise ValueError(f"{name!r} is no model: programs would take it for an option")
        return model

    @field_validator("operations")
    @classmethod
    def _without_slash(cls, operations: Words) -> Words:
        return tuple(name.removeprefix("/") for name in operations)

    @field_validator("environment")
    @classmethod
    def _not_ours(cls, environment: dict[str, str]) -> dict[str, str]:
        if taken := sorted(name for name in environment if name.startswith(OURS)):
            raise ValueError(f"{', '.join(taken)}: variables that begin with {OURS} are set by remit alone")
        for name, value in environment.items():
            if not name or "=" in name or "\0" in name + value:
                raise ValueError(f"{name!r} is no variable that a program can be given")
        return environment

    @field_validator("folder")
    @classmethod
    def _a_path(cls, folder: str) -> str:
        if not folder or "\0" in folder:
            raise ValueError(f"{folder!r} is no folder; write one that lies inside of the workspace")
        return folder

    @property
    def meant_kind(self) -> Kind:
        """What it is, where that is not said."""
        if self.kind is not None:
            return self.kind
        return Kind.GRPC if self.grpc else Kind.A2A if self.a2a else Kind.COMMAND if self.command else Kind.PROFILE

    @model_validator(mode="after")
    def _fits(self) -> "DefinitionTable":
        if self.meant_kind in ELSEWHERE:
            self._fits_one_elsewhere()
        elif named := [key for key in (*map(str, ELSEWHERE), *_THEIRS_ALONE) if getattr(self, key) is not None]:
            raise ValueError(f"{named[0]}: it is for agents elsewhere (grpc, a2a)")
        elif self.kind is Kind.MODEL:
            self._fits_a_model()
        elif self.isolation is not Isolation.PROCESS:
            raise ValueError("isolation: a command is always a process of its own: leave it out, or write process")
        elif self.kind is not Kind.PROFILE and (self.kind is not None or self.command):
            self._fits_no_model()
        if self.merge and self.workspace is not Workspace.WORKTREE:
            raise ValueError('merge = true needs workspace = "worktree"')
        if self.kind in (Kind.COMMAND, Kind.ACP) and not self.command:
            raise ValueError(f'kind = "{self.kind}" needs a command')
        if self.command and self.kind in (None, Kind.COMMAND):
            _check_places(self.words, self.prompt)
        return self

    def _fits_one_elsewhere(self) -> None:
        kind = self.meant_kind
        if getattr(self, kind) is None:
            raise ValueError(f'kind = "{kind}" needs its address: {kind} = "…"')
        for other in ELSEWHERE:
            if other is not kind and getattr(self, other) is not None:
                raise ValueError(f"{other}: it has an address of {kind} already; an agent has one")
        for key in _NOT_THEIRS:
            if key in self.model_fields_set:
                raise ValueError(f"{key}: it is for agents that are started here, and this one is elsewhere ({kind})")
        if "isolation" in self.model_fields_set and self.isolation is not Isolation.INLINE:
            raise ValueError(f"isolation: it runs elsewhere, so {self.isolation} would hold nothing apart: leave it out")
        if self.workspace not in (Workspace.SHARED, Workspace.NONE):
            raise ValueError(f"workspace: it runs elsewhere and has no folder here, so {self.workspace} means nothing: leave it out")

    def _fits_a_model(self) -> None:
        for key, reason in _NOT_A_MODELS.items():
            if key in self.model_fields_set:
                raise ValueError(f"{key}: {reason}")
        if "isolation" in self.model_fields_set and self.isolation is not Isolation.INLINE:
            raise ValueError(
                f"isolation: a model runs inline and touches nothing itself, so {self.isolation} would hold nothing apart: leave it out. "
                "Those that it delegates to have the isolation that they declare"
            )

    def _fits_no_model(self) -> None:
        for key in MODELS_ALONE:
            if getattr(self, key) is not None:
                raise ValueError(f"{key}: it is for language models" + (": what a coding agent may use stands in allow" * (key == "tools")))
        if self.model is not None and len(self.model) > 1:
            raise ValueError("model: several of them, one for when the other fails, are for language models; name one")

    @property
    def words(self) -> Words:
        assert not isinstance(self.command, str)
        return self.command or ()

    @property
    def parameters_schema(self) -> dict[str, Any]:
        """What a delegation to it is given: a task in words; of a command, whatever stands for a parameter in it; of one elsewhere,
        whatever that one takes, which it tells when it is reached."""
        if self.meant_kind in ELSEWHERE:
            return self.parameters or {"type": "object", "properties": {}, "additionalProperties": True}
        named = parameters_in(self.words) if self.kind in (None, Kind.COMMAND) else ()
        if not named:
            return PROMPT_SCHEMA
        # Of one that says how it is prompted, or where, the task is its prompt; any other may do with its parameters.
        is_prompted = "prompt" in self.model_fields_set or {"prompt", "prompt_file"} & set(places_in(self.words))
        filled_in = {name: {"description": f"Stands for {{{name}}} in its command."} for name in named if name != "task"}
        required = [*(["task"] if is_prompted or "task" in named else []), *filled_in]
        return {**PROMPT_SCHEMA, "properties": {**PROMPT_SCHEMA["properties"], **filled_in}, "required": required}


def _check_places(words: Words, prompt: PromptBy) -> None:
    """Raises `ValueError` where what is filled in would be carried out as code."""
    places = places_in(words)
    if prompt is PromptBy.ARGUMENT and "prompt" not in places:
        words = (*words, "{prompt}")
    is_input = prompt is PromptBy.STDIN and not {"prompt", "prompt_file"} & set(places)
    fault = code_filled_in(words, prompt_is_input=is_input)
    if fault is not None:
        raise ValueError(
            f'command: {fault}. Pass it as a further argument, and use "$1" in the script: '
            """["sh", "-c", 'grep -c "$1" notes.txt', "sh", "{word}"]; braces that are no placeholder are doubled: {{print}}"""
        )


def faults_of(error: ValidationError) -> list[str]:
    faults = []
    for fault in error.errors(include_url=False):
        where = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            close = difflib.get_close_matches(where, DefinitionTable.model_fields, n=1)
            faults.append(f"{where}: there is no such key" + (f" (did you mean {close[0]}?)" if close else ""))
        else:
            said = fault["msg"].removeprefix("Value error, ")
            if fault["type"] == "tuple_type" and len(fault["loc"]) == 1:
                said = "write a name, several with commas between them, or a list of names"
            faults.append(f"{where}: {said}" if where else said)
    return faults
