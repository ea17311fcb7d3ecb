"""What every vendor's dialect has to say: the command line of a turn, and what a line of its stream means.

Values and one protocol, no input or output. Written by `claude`, `codex` and `opencode`; used by `agent`, `turn` and `hearing`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from remit.agents.definition import Definition

TOLD = "REMIT_"
"""What the names of remit's own variables begin with."""
_DETAIL_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What is asked of the vendor's program: one prompt, in a new session or in one that is there."""

    definition: Definition
    environment: Mapping[str, str]
    """As it will be, without the vendor's own settings."""
    folder: Path
    scratch: Path
    delegation_id: str
    session: str | None = None
    """The vendor's session to go on in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    argv: tuple[str, ...]
    """The prompt is not in it: it is written to the standard input."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What the vendor's program is set to, unless the user has set it otherwise."""
    imposed: Mapping[str, str] = field(default_factory=dict)
    """What it is set to whatever the user has set."""


class Scope(StrEnum):
    """What a number of tokens counts. All count every token of input, cached ones too, and of output."""

    ITEM = "item"
    """One message or step, known by its key; said again it replaces what was said before."""
    RUN = "run"
    """All since the program was started."""
    SESSION = "session"
    """All since the session began, earlier runs included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """A tool is used, or was: status pending, completed or failed. What was said of it before may be left out."""

    tool: str
    detail: str
    status: str
    call_id: str = ""
    why: str = ""
    """It failed: its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    steps: tuple[tuple[str, str], ...]
    """Each step and its status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    scope: Scope
    tokens: int
    cost: float = 0.0
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    tool: str
    detail: str
    call_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """Something worth a line, and nothing more."""

    message: str
    is_trouble: bool = False
    """Its service does not answer as it should, and it tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The turn is over and this is the answer; None: what was said last."""

    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Broke:
    """The turn was interrupted, and says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """The vendor's error, in its own words."""

    message: str
    status: int | None = None
    is_hopeless: bool = False
    """The program goes on trying, in vain: it is not waited for."""


Heard = Began | Said | Used | Planned | Spent | Denied | Noted | Ended | Broke | Trouble


class Dialect(Protocol):
    @property
    def vendor(self) -> str: ...
    @property
    def program(self) -> str:
        """What it is called on PATH."""
        ...

    @property
    def variables(self) -> Sequence[str]:
        """Names (or patterns) of the variables it is configured by, which reach it."""
        ...

    @property
    def never_passed(self) -> Sequence[str]:
        """Names (or patterns) of those that would make it believe that it runs inside of another one's session."""
        ...

    @property
    def hand_in_seconds(self) -> float:
        """What one more question takes at least: with less left, it is not interrupted."""
        ...

    def command_line(self, turn: Turn) -> CommandLine: ...
    def read(self, line: Mapping[str, Any]) -> list[Heard]: ...


NETWORK_VARIABLES = (
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "XDG_*",
)  # fmt: skip


def told_names(turn: Turn) -> list[str]:
    """The variables by which our server knows whose child a delegation is. By name: their values belong into no file and no argument."""
    return sorted(name for name in turn.environment if name.startswith(TOLD))


def program_of(turn: Turn, program: str) -> list[str]:
    return list(turn.definition.command or (program,))


def is_inside(path: Path, folder: Path) -> bool:
    return path.is_relative_to(folder)


def detail_of(value: Any) -> str:
    """What a tool was given, in a line: the part of it that tells most."""
    if isinstance(value, Mapping):
        named = ("command", "cmd", "file_path", "filePath", "path", "pattern", "url", "query", "target", "agent", "description", "prompt")
        told = next((value[name] for name in named if isinstance(value.get(name), str)), None)
        value = told if told is not None else json.dumps(value, ensure_ascii=False, default=str)
    return " ".join(str(value).split())[:_DETAIL_CHARACTERS]


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def mapping_of(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def items_of(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def count_of(value: Any) -> int:
    """A number of tokens, as far as it is one."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12 else 0


def cost_of(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9 else 0.0


def status_of(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 100 <= value < 600 else None
