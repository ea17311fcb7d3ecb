"""The declaration of an agent that is not a Python function: its keys, the placeholders of its command, and the checks of both.

Made of a table in the settings or the head of an agent file; read by `agents.command`, `agents.acp`, `agents.coding` and `agents.model`.
"""

import difflib
import json
import re
import shlex
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from remit.core.agents import AgentSpec, Answers, Isolation, WorkspaceKind
from remit.core.errors import Misused
from remit.core.parameters import own_spelling

# ---- placeholders

TOLD = frozenset({"prompt", "prompt_file", "session_id", "scratch", "return_file", "workspace"})
"""What remit fills in by itself; every other name is a parameter of the delegation."""
_PIECE = re.compile(r"\$\{[^{}]*\}|\{(?P<escaped>\{[A-Za-z_][A-Za-z0-9_]*\})\}|\{\{|\}\}|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}")
"""`${NAME}` is a shell's variable and stays as it is."""
_DOUBLED = {"{{": "{", "}}": "}"}


@dataclass(frozen=True, slots=True)
class Placeholder:
    name: str


@lru_cache(maxsize=1000)
def pieces_of(word: str) -> tuple[str | Placeholder, ...]:
    """A word of a command: text, and the places to fill in. `{{` and `}}` are braces, and `{{name}}` is the text `{name}`.

    Where braces stand singly as well, in JSON or a script, doubled ones are two: nobody doubled them.
    """
    is_script = re.search(r"[{}]", _PIECE.sub("", word)) is not None
    found: list[str | Placeholder] = []
    end = 0
    for match in _PIECE.finditer(word):
        found.append(word[end : match.start()])
        end = match.end()
        if match["name"]:
            found.append(Placeholder(match["name"]))
        else:
            found.append(match["escaped"] or (match[0] if is_script else _DOUBLED.get(match[0], match[0])))
    return tuple(piece for piece in (*found, word[end:]) if piece)


def places_in(words: Iterable[str]) -> tuple[str, ...]:
    """The names that stand in a command, each once, in their order."""
    return tuple(dict.fromkeys(piece.name for word in words for piece in pieces_of(word) if isinstance(piece, Placeholder)))


def parameters_in(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in places_in(words) if name not in TOLD)


def filled(words: Sequence[str], values: Mapping[str, Any]) -> list[str]:
    """The command with its places filled in. A list that is a word of its own becomes as many words as it has items."""
    argv: list[str] = []
    for word in words:
        pieces = pieces_of(word)
        value = values[pieces[0].name] if len(pieces) == 1 and isinstance(pieces[0], Placeholder) else None
        if isinstance(value, list | tuple):
            argv += [text_of(one) for one in value]
        else:
            argv.append("".join(text_of(values[piece.name]) if isinstance(piece, Placeholder) else piece for piece in pieces))
    return argv


def text_of(value: Any) -> str:
    """Text as it stands, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ---- commands that would run what is filled in

_NEVER = "(?!)"
_HARMLESS = frozenset({"session_id"})
"""Of our own making, and nothing but letters, digits and underscores."""
_NAMED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """How a program that takes code is called: its options, as patterns."""

    code: str = _NEVER
    """The next word is code."""
    file: str = _NEVER
    """The next word names a file with code, so that no operand is any."""
    valued: str = _NEVER
    """The next word belongs to the option."""
    reads_input: str | None = None
    """It reads code from its standard input where it is given no other, or with such an option; None: never."""
    operand_is_code: bool = False
    """Without an option its first operand is code; else that is a file with code."""
    reads_on: bool = False
    """It looks for options after its code too: a value that begins with a dash would be one, unless `--` stands before it."""


_READERS = {
    r"(?:r?bash|dash|ash|[zcmo]?k?sh|tcsh|fish)": _Reader(
        code=r"[-+][A-Za-z]*c[A-Za-z]*|--command|-C|--init-command",
        valued=r"[-+][A-Za-z]*[oO]|--rcfile|--init-file",
        reads_input=r"-[A-Za-z]*s[A-Za-z]*",
    ),
    r"(?:python|pypy)[\d.]*": _Reader(
        code=r"-[bBdEiIOPqsSuvx]*[cm]", valued=r"-[WX]|--check-hash-based-pycs", reads_input="-[bBdEiIOPqsSuvx]*i[A-Za-z]*"
    ),
    r"(?:node(?:js)?|bun|deno)": _Reader(
        code=r"-e|-p|-pe|--eval|--print|eval",
        valued=r"-r|--require|--import|--loader|-C|--conditions|--env-file",
        reads_input="-i|--interactive",
        reads_on=True,
    ),
    r"(?:perl|ruby)[\d.]*": _Reader(code=r"-[A-Za-z0-9]*[eE]", reads_input=_NEVER, reads_on=True),
    r"php[\d.]*": _Reader(code=r"-[rBRE]|--run", valued=r"-[cdzt]", reads_input="-a", reads_on=True),
    r"(?:luajit|lua[\d.]*)": _Reader(code="-e", valued="-l", reads_input="-i", reads_on=True),
    r"(?:Rscript|osascript)": _Reader(code="-e", reads_input=_NEVER, reads_on=True),
    r"(?:pwsh|powershell)": _Reader(code="(?i:-c|-command|-e|-encodedcommand)", reads_input=_NEVER),
    r"[gmn]?awk": _Reader(file="-f|--file", valued="-[Fv]|--assign", operand_is_code=True),
    r"g?sed": _Reader(code="-[nErsuz]*e|--expression", file="-[nErsuz]*f|--file", operand_is_code=True, reads_on=True),
}
_WHOLLY = re.compile(r"ssh|rsh|watch|eval")
"""All that they are given is handed to a shell."""
_STARTERS = re.compile(
    r"env|nice|ionice|nohup|timeout|stdbuf|setsid|sudo|doas|time|chroot|busybox|command|exec|xargs|flock|unshare|nsenter|docker|podman"
)
"""They start another program, which stands among their arguments."""
_SPLITTING = re.compile(r"-[A-Za-z0]*S.*|--split-string.*", re.DOTALL)


def code_filled_in(words: Sequence[str], *, prompt_is_input: bool) -> str | None:
    """What is wrong with a command that would carry out what it is given; None: nothing that can be seen."""
    first = _name(words[0])
    if _fills(words[0]):
        return f"{words[0]!r} is filled in, and so would choose the program that is started"
    if first == "env" and (fault := _below_env(words[1:])) is not None:
        return fault
    is_starter = _STARTERS.fullmatch(first) is not None
    for index, word in enumerate(words):
        name, rest, is_sure = _name(word), words[index + 1 :], index == 0 or is_starter
        if is_sure and _WHOLLY.fullmatch(name) and any(map(_fills, rest)):
            return f"{name} hands whatever it is given to a shell"
        reader = next((reader for shape, reader in _READERS.items() if re.fullmatch(shape, name)), None)
        if reader is None:
            continue
        fault = _taken_apart(reader, rest).fault(name, prompt_is_input) if is_sure else _taken_apart(reader, rest).fault_of_code(name)
        if fault is not None or is_sure:
            return fault  # what stands further on are arguments of its script
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """The words after a program that takes code, by what they are to it."""

    reader: _Reader
    options: tuple[str, ...]
    """With the words that belong to them."""
    is_code: bool
    """An option says that the operand is code."""
    is_file: bool
    operand: str | None
    is_closed: bool
    """`--` stands before the operand."""
    arguments: Sequence[str]

    def fault(self, name: str, prompt_is_input: bool) -> str | None:
        """Of a program that is certainly started."""
        reader, operand = self.reader, self.operand
        if (fault := self.fault_of_code(name)) is not None:
            return fault
        if any(map(_fills, self.options)):
            return f"what is filled in stands among the options of {name}"
        if operand is not None and not self.is_code and _fills(operand) and not self.is_closed and (reader.reads_on or not self.is_file):
            return f"what is filled in where {name} looks for options may become one; put -- before it"
        if not prompt_is_input or reader.reads_input is None or self.is_code:
            return None
        is_told = any(re.fullmatch(reader.reads_input, option) for option in self.options)
        if operand is None or operand in _INPUT or is_told:
            return f"{name} would carry out the prompt, which is its standard input"
        return None

    def fault_of_code(self, name: str) -> str | None:
        is_code = self.is_code or (self.reader.operand_is_code and not self.is_file)
        if self.operand is None or not is_code:
            return None
        if _fills(self.operand) or (self.is_code and any(map(_fills, self.options))):
            return f"what is filled into the code of {name} would be carried out"
        if self.reader.reads_on:
            before = self.arguments[: self.arguments.index("--")] if "--" in self.arguments else self.arguments
            if any(map(_fills, before)):
                return f"{name} looks for options after its code too, and what is filled in there may become one; put -- before it"
        return None


def _taken_apart(reader: _Reader, rest: Sequence[str]) -> _Call:
    options: list[str] = []
    is_code = is_file = is_closed = False
    index = 0
    while index < len(rest) and not is_closed:
        word = rest[index]
        is_closed, starts_code = word == "--", re.fullmatch(reader.code, word) is not None
        if not is_closed and not starts_code and (word[:1] not in ("-", "+") or word in _INPUT):
            break
        names_file = re.fullmatch(reader.file, word) is not None
        is_code, is_file = is_code or starts_code, is_file or names_file
        options.append(word)
        index += 1
        if (names_file or re.fullmatch(reader.valued, word)) and index < len(rest):
            if not _NAMED.match(rest[index]):  # awk -v NAME=VALUE is a way to pass a value
                options.append(rest[index])
            index += 1
    return _Call(
        reader=reader,
        options=tuple(options),
        is_code=is_code,
        is_file=is_file,
        operand=rest[index] if index < len(rest) else None,
        is_closed=is_closed,
        arguments=rest[index + 1 :],
    )


def _below_env(words: Sequence[str]) -> str | None:
    """Before its program `env` takes variables: what is filled in must be the value of one, not its name nor the program."""
    for word in words:
        if _SPLITTING.fullmatch(word):
            return "env -S takes what is filled in apart into words" if any(map(_fills, words)) else None
        is_variable = _NAMED.match(word) is not None
        if _fills(word) and not is_variable:
            return f"{word!r} is filled in where env takes options, variables and the program"
        if not word.startswith("-") and not is_variable:
            return None
    return None


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _fills(word: str) -> bool:
    return any(isinstance(piece, Placeholder) and piece.name not in _HARMLESS for piece in pieces_of(word))


# ---- the keys


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
    workspace: WorkspaceKind = WorkspaceKind.SHARED
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
        if self.merge and self.workspace is not WorkspaceKind.WORKTREE:
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
        if self.workspace not in (WorkspaceKind.SHARED, WorkspaceKind.NONE):
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


# ---- one agent as written


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    name: str
    table: Mapping[str, Any]
    """Keys of `DefinitionTable`, unchecked."""
    source: str
    tools: tuple[str, ...] | None = None
    """Which tools it wants to keep of its carrier's; None: all of them."""
    without: tuple[str, ...] = ()
    lines: Mapping[str, int] | None = None
    """Where each key stands, for an agent from a file of its own."""
    is_guest: bool = False
    """Whether it is a file of another tool's, which cannot give itself more than its carrier has."""
    notes: tuple[str, ...] = ()
    """What it says that nothing is done with."""


# ---- the definition

__all__ = [
    "ELSEWHERE", "NO_SIGNAL", "OURS", "PROMPT_SCHEMA", "Definition", "DefinitionTable", "Kind", "PromptBy",
    "checked_parameters", "checked_task", "definition_of",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    spec: AgentSpec
    kind: Kind
    command: tuple[str, ...] = ()
    """The program and its arguments. Of a `command` its placeholders are filled in: parameters, and what `placeholders.TOLD` names."""
    prompt: PromptBy = PromptBy.STDIN
    folder: str = "."
    """Where it is started, inside its workspace."""
    pass_environment: tuple[str, ...] = ()
    """Names of variables (or patterns: `AWS_*`) that reach it beside the few that every program needs."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables set for it."""
    instructions: str = ""
    """What stands before every task: the body of an agent file."""
    model: str | None = None
    """What a coding agent is told to use."""
    models: tuple[str, ...] = ()
    """Of a model: which it is, the next one when one fails; none: the project's."""
    tools: tuple[str, ...] | None = None
    """Of a model: which agents and operations it may delegate to (`worker`, `worker.read_file`); None: those that come with remit."""
    requests: int | None = None
    """Of a model: how often it may be asked in one delegation; None: the setting `model_requests`."""
    temperature: float | None = None
    """Of a model; None: the provider's own."""
    allow: tuple[str, ...] = ()
    """Which tools it may use without being asked; everything else is denied, and the denial recorded."""
    delegates: bool = False
    """Whether it is given remit's own tools, so that it can delegate in turn."""
    hand_in: str = "SIGTERM"
    """The signal of the soft deadline, sent only to a program that catches it; `none`: it is not told."""
    options: tuple[str, ...] = ()
    """More arguments for a coding agent's command line."""
    runs_on: str | None = None
    """For a profile: the agent that carries it out; None: the one the settings name, or the first that can."""
    built_in: str | None = None
    """For a profile: the role that comes with remit and carries it out where nobody else is bound (see `agents.builtin.roles`)."""
    address: str = ""
    """Of one elsewhere: `unix:/path` or `host:port` of gRPC, the URL of A2A."""
    remote: str | None = None
    """Of one elsewhere: what it is called there (`worker.read_file`, a skill); None: by its name here."""
    token_variable: str | None = None
    """Of one elsewhere: the variable of the environment that holds our token for it, which itself never stands in a file."""
    ca_file: str | None = None
    """Of one elsewhere: PEM of who signed its certificate, below the project's root unless it is a whole path; None: for gRPC no TLS
    unless the address says so, for HTTPS those that this machine trusts."""
    notes: tuple[str, ...] = ()
    """What its file says that is not done here, or not as it says; told to whoever looks at the agent."""

    @property
    def name(self) -> str:
        return self.spec.name


def definition_of(name: str, table: Mapping[str, Any], *, source: str) -> Definition:
    """What a table declares. Raises `Misused` naming each fault and where it stands."""
    try:
        said = DefinitionTable.model_validate(dict(table))
    except ValidationError as error:
        raise Misused(
            f"{source}: {'; '.join(faults_of(error))}.",
            advice="`remit agents --help` and docs/reference/agents.md say what an agent declares.",
        ) from None
    command = said.words
    kind = said.meant_kind
    is_elsewhere = kind in ELSEWHERE
    spec = AgentSpec(
        name=name,
        description=said.description,
        timeout_seconds=said.timeout,
        idle_seconds=said.idle,
        isolation=Isolation.INLINE if kind is Kind.MODEL or is_elsewhere else Isolation.PROCESS,
        answers=Answers.VALUE if is_elsewhere and "answers" not in said.model_fields_set else said.answers,
        workspace=WorkspaceKind.NONE if is_elsewhere else said.workspace,
        merge=said.merge,
        resumable=said.resumable,
        requires_artifacts=said.requires_artifacts,
        retries=said.retries,
        slots=said.slots,
        parameters_schema=said.parameters_schema,
        kind=str(kind),
        output_schema=said.output_schema,
        languages=said.languages,
        operations=said.operations,
        source=source,
    )
    return Definition(
        spec=spec,
        kind=kind,
        command=command,
        prompt=said.prompt,
        folder=said.folder,
        pass_environment=said.pass_environment,
        environment=said.environment,
        instructions=said.instructions,
        model=said.model[0] if said.model and kind is not Kind.MODEL else None,
        models=said.model or () if kind is Kind.MODEL else (),
        tools=said.tools,
        requests=said.requests,
        temperature=said.temperature,
        allow=said.allow,
        delegates=said.delegates,
        hand_in=said.hand_in,
        options=said.options,
        runs_on=said.runs_on,
        built_in=said.built_in,
        address=(said.grpc if kind is Kind.GRPC else said.a2a if kind is Kind.A2A else None) or "",
        remote=said.remote,
        token_variable=said.token_variable,
        ca_file=said.ca_file,
    )


def checked_task(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a prompted agent: its task in words, and whatever else was named."""
    task = parameters.get("task")
    if not isinstance(task, str) or not task.strip():
        fault = "task: it is required" if task is None else f"task must be text that says what is to be done, not {task!r:.60}"
        raise Misused(
            f"Parameters of {name}: {fault}.", code="INVALID_PARAMETERS", advice=f'Say what is to be done: {name} takes task="…".'
        )
    return dict(parameters)


def checked_parameters(spec: AgentSpec, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a command: those that are filled into it, and its task where it has use for one. Raises `Misused`."""
    parameters = own_spelling(parameters, spec.parameters_schema.get("properties", ()), spec.name)
    required = spec.parameters_schema["required"]
    missing = [name for name in required if name != "task" and parameters.get(name) is None]
    if missing:
        raise Misused(
            f"Parameters of {spec.name}: {', '.join(missing)}: required, for its command names {'it' if len(missing) == 1 else 'them'}.",
            code="INVALID_PARAMETERS",
            advice=f"{spec.name} takes {', '.join(f'{name}=…' for name in required)}.",
        )
    return checked_task(spec.name, parameters) if "task" in required or "task" in parameters else dict(parameters)
