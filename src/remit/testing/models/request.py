"""A parsed request to a scripted model: the same shape for all four APIs.

Scripts decide on it, and tests inspect it."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

_SESSION = re.compile(r"\bsess_\d{8,}_[a-z0-9]{6}\b")
_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)
_TASK = "## Task\n"
_TITLE = re.compile(r"\btitle\b", re.IGNORECASE)


class Api(StrEnum):
    ANTHROPIC = "anthropic"
    """Anthropic Messages."""
    CHAT = "chat"
    """OpenAI Chat Completions."""
    RESPONSES = "responses"
    """OpenAI Responses."""
    GOOGLE = "google"
    """Google's Gemini."""


@dataclass(frozen=True, slots=True)
class EarlierCall:
    """An earlier call of the model in the conversation."""

    name: str
    arguments: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    role: str
    """system, user, assistant or tool (the result of a call)."""
    text: str
    calls: tuple[EarlierCall, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    name: str
    namespace: str | None = None
    """In the Responses API: the tools of an MCP server share one."""
    schema: Mapping[str, Any] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.namespace}__{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    api: Api
    model: str
    stream: bool
    messages: tuple[Message, ...]
    """The conversation so far; the system prompt is the first, if there is one."""
    tools: tuple[Tool, ...]
    body: Mapping[str, Any]
    """As it came."""
    headers: Mapping[str, str] = field(default_factory=dict)
    number: int = 0
    """Counted over all requests of the server, from 1."""
    turn: int = 0
    """Number of the request in its conversation, from 0; a repeat after an error counts."""

    @property
    def text(self) -> str:
        """All text of the user, without the system prompt and the results of tools."""
        return "\n".join(message.text for message in self.messages if message.role == "user")

    @property
    def system(self) -> str:
        return "\n".join(message.text for message in self.messages if message.role == "system")

    @property
    def last(self) -> Message:
        """The message to answer: the last one of the user or a tool."""
        return next((message for message in reversed(self.messages) if message.role != "system"), Message(role="user", text=""))

    @property
    def asked(self) -> str:
        """Its text from the task on: without reminders, and without the start of remit's prompt."""
        spoken = (_REMINDER.sub("", message.text).strip() for message in reversed(self.messages) if message.role != "system")
        text = next(filter(None, spoken), "")
        _, mark, task = text.partition(_TASK)
        return task.strip() if mark and self.last.role == "user" else text

    @property
    def answers(self) -> int:
        """How often the model has already replied in this conversation."""
        roles = [message.role for message in self.messages]
        return sum(role == "assistant" and before != "assistant" for before, role in zip(["", *roles], roles, strict=False))

    @property
    def results(self) -> tuple[str, ...]:
        """The results of its tool calls."""
        return tuple(message.text for message in self.messages if message.role == "tool")

    @property
    def conversation(self) -> str:
        """Equal for all requests of one conversation: the session id of remit's agent, or else a hash of its beginning."""
        session = _SESSION.search(self.text)
        if session:
            return session[0]
        first = next((message.text for message in self.messages if message.role == "user"), "")
        return hashlib.sha256(_REMINDER.sub("", first).encode()).hexdigest()[:16]

    @property
    def is_aside(self) -> bool:
        """Whether it is a small request that coding agents make beside the work: a title for the session, or a quota check."""
        if self.tools:
            return False
        tiny = self.body.get("max_tokens") == 1
        return tiny or bool(_TITLE.search(self.system[:4000]))

    def tool(self, name: str) -> Tool | None:
        """The tool with this name, in full or by its end, ignoring case; None if it is not offered."""
        wanted = name.lower()
        by_rank: dict[int, Tool] = {}
        for tool in self.tools:
            full = tool.full_name.lower()
            if wanted in (full, tool.name.lower()):
                by_rank.setdefault(0 if tool.namespace is None else 1, tool)
            elif re.search(rf"[_.:/-]{re.escape(wanted)}$", full):
                by_rank.setdefault(2, tool)
        return by_rank[min(by_rank)] if by_rank else None


# ---- returns

_TOLD = re.compile(
    r"Take these over as they stand: session_id (?P<session>\S+), agent_type (?P<agent>.+?), "
    r"delegation_depth (?P<depth>\d+), delegation_path (?P<path>\[.*\])\."
)


def valid_return(
    request: ModelRequest,
    summary: str = "Did what was asked. Nothing is left to do.",
    *,
    artifacts: Sequence[str | dict[str, Any]] = (),
    status: str = "completed",
    words: str = "",
    **more: Any,
) -> str:
    """The answer of a good agent: the JSON in a fenced block, after `words`. `artifacts` are paths or whole entries; `more` are further
    fields, e.g. `data=…`, `errors=[…]`. Raises `LookupError` if the prompt contains no format instruction."""
    told = list(_TOLD.finditer(request.text))
    if not told:
        raise LookupError("The request does not contain remit's format instruction.")
    fields = {
        "status": status,
        "summary": summary,
        "artifacts": [{"type": "report", "path": entry} if isinstance(entry, str) else entry for entry in artifacts],
        "metadata": {
            "session_id": told[-1]["session"],
            "agent_type": told[-1]["agent"],
            "delegation_depth": int(told[-1]["depth"]),
            "delegation_path": json.loads(told[-1]["path"]),
        },
        "errors": [],
        "next_steps": "",
        **more,
    }
    return f"{words}\n\n```json\n{json.dumps(fields, indent=2, ensure_ascii=False)}\n```\n".lstrip()
