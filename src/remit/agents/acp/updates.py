"""Updates and permission requests of an agent that speaks the Agent Client Protocol.

Reads plain mappings instead of the library's models: an agent may be newer than the library. Used by `acp.connection`."""

import asyncio
import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from acp.exceptions import RequestError
from acp.meta import CLIENT_METHODS

from remit.agents.coding.dialects import cost_of, count_of, items_of, mapping_of
from remit.agents.transcript import OVER, Call, Tail, TextBuffer, ToolCalls, Words, tell_plan
from remit.core.context import Context
from remit.core.errors import Refused, Stopped
from remit.core.policy import ACP_EFFECTS

# ---- permission

KINDS = frozenset({"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"})
OWN_TOOLS = ("other:mcp__remit__*", "other:remit_*", "other:remit.*", "other:remit: *")
"""Names that agents give to the tools of remit's own server, which is provided with it."""
_NAMED = frozenset({"read", "search", "think", "other"})
"""Kinds that may be allowed by title. The title of the others, also of kinds added later, may be a command or a path: text of the model."""
_JOINING = frozenset(";&|<>$`()\n\r")
"""Characters that join or embed commands."""
_GRANTS = ("allow_once", "allow_always")
"""In order of preference: a permanent grant is used only if nothing less is offered."""
_REFUSALS = ("reject_once", "reject_always")


Options = Sequence[Mapping[str, Any]]
"""The answers that the agent offers, each with `optionId` and `kind`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    allowed: bool
    option_id: str | None
    """The answer; None: the request is cancelled, because no suitable answer was offered."""
    because: str


def decide(allow: Sequence[str], tool: Call, options: Options) -> Decision:
    """Whether `tool` may be used, and the option to answer with."""
    pattern = next((pattern for pattern in allow if _fits(pattern, tool)), None)
    if pattern is None:
        return _refuse(options, "nothing in its allow-list fits")
    granted = _first(options, _GRANTS)
    if granted is None:
        return _refuse(options, "it offered no answer that allows it")
    return Decision(allowed=True, option_id=granted, because=f"allowed by {pattern!r}")


def _refuse(options: Options, because: str) -> Decision:
    return Decision(allowed=False, option_id=_first(options, _REFUSALS), because=because)


_PATHS = ("path", "file_path", "filePath", "filepath", "abs_path", "notebook_path")
_SEVERAL = ("paths", "files", "file_paths", "edits", "changes")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s`'\"<>]+")
_MOST_PATHS = 50


def _facts(ctx: Context, tool: Call, call: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Facts of its command; else of its URL and of each named path. Its own scratch folder is exempt."""
    given = call.get("rawInput")
    said: Mapping[str, Any] = given if isinstance(given, dict) else {}
    if tool.kind == "execute":
        command = said.get("command")
        yield {"command": command if isinstance(command, str | list) else tool.title.strip().strip("`")}
        return
    address = said.get("url") if isinstance(said.get("url"), str) else next(iter(_ADDRESS.findall(tool.title)), None)
    is_address = address is not None and (tool.kind == "fetch" or "url" in said)
    if is_address:
        yield {"url": address}
    paths = list(dict.fromkeys(_named(call, said)))
    if not paths and not is_address:
        yield {}
    if len(paths) > _MOST_PATHS:
        raise Refused(f"it names {len(paths)} files at once", code="POLICY_DENIED")
    yield from ({"path": path} for path in paths if not _is_below(path, ctx.scratch))


def _named(call: Mapping[str, Any], said: Mapping[str, Any]) -> Iterator[str]:
    for listed in (call.get("locations"), call.get("content")):
        for one in listed if isinstance(listed, list) else ():
            if isinstance(one, dict) and isinstance(one.get("path"), str):
                yield one["path"]
    for name in _PATHS:
        if isinstance(said.get(name), str):
            yield said[name]
    for name in _SEVERAL:  # a list of paths or of operations on them; or keyed by path
        several = said.get(name)
        for one in several if isinstance(several, list | dict) else ():
            yield from [one] if isinstance(one, str) else _named({}, one) if isinstance(one, dict) else ()


def _is_below(path: str, folder: Path) -> bool:
    return ".." not in Path(path).parts and Path(path).is_relative_to(folder)


def _fits(pattern: str, tool: Call) -> bool:
    """The name of a kind matches that kind only: a command titled "read" is not a read."""
    if pattern in KINDS:
        return pattern == tool.kind
    kind, colon, title = pattern.partition(":")
    if colon and kind in KINDS:
        return kind == tool.kind and _title_fits(title, tool)
    return fnmatchcase(tool.kind, pattern) or (tool.kind in _NAMED and fnmatchcase(tool.title, pattern))


def _title_fits(pattern: str, tool: Call) -> bool:
    """`execute:pytest *` matches pytest only: characters that join commands must be in the pattern itself."""
    title = tool.title.strip()
    if title.startswith("`") and title.endswith("`"):  # as some agents write a command
        title = title.strip("`").strip()
    if tool.kind == "execute" and pattern != "*" and not _JOINING & set(title) <= set(pattern):
        return False
    return fnmatchcase(title, pattern)


def _first(options: Options, kinds: Sequence[str]) -> str | None:
    return next((str(one["optionId"]) for kind in kinds for one in options if one.get("kind") == kind and "optionId" in one), None)


# ---- updates

THINKING_SECONDS = 5.0
_CANCELLED: dict[str, Any] = {"outcome": {"outcome": "cancelled"}}


class Listener:
    """The connection's handler."""

    def __init__(self, ctx: Context, allow: Sequence[str]) -> None:
        self.ctx = ctx
        self._allow = allow
        self.is_replay = False
        """While a session is loaded the agent repeats earlier output, which is ignored."""
        self.is_over = False
        self.whole, self.last = Tail(), Tail()
        self._message_id: Any = None
        self._tools = ToolCalls(ctx)
        self._words = Words(ctx)
        self._buffer = TextBuffer(self._words.say)
        self._thought_at = -math.inf
        self._context, self._cost = 0, 0.0
        """Of the session, as counted by the agent: tokens in its context, and its cost."""
        self._turn_tokens = 0
        """Spent in this turn."""

    async def __call__(self, method: str, params: Any, is_notification: bool) -> Any:
        given = mapping_of(params)
        try:
            if method == CLIENT_METHODS["session_update"]:
                self._update(mapping_of(given.get("update")))
            elif method == CLIENT_METHODS["session_request_permission"]:
                return await self._permission(given)
            elif not is_notification:
                raise RequestError.method_not_found(method)
        except Stopped:  # the delegation has ended
            self.is_over = True
            return _CANCELLED
        return None

    def begin_turn(self) -> None:
        self.whole.clear()
        self.last.clear()
        self._message_id = None
        self._turn_tokens = 0

    def end(self) -> None:
        """Ignore everything from now on."""
        with contextlib.suppress(Stopped):
            self._end_message()
        self.is_over = True

    def end_turn(self, tokens: Any) -> None:
        """Its last message is its answer. `tokens` of the turn: those that were not drawn while it ran are drawn now."""
        with contextlib.suppress(Stopped):
            self._buffer.flush()
            self._words.end_turn()
            if count_of(tokens) > self._turn_tokens:
                self._spend(count_of(tokens) - self._turn_tokens, 0.0)

    def _end_message(self) -> None:
        self._buffer.flush()
        self._words.end_message()

    def _count(self, used: Any, cost: Any) -> None:
        """Draw the growth of context and cost as it is reported."""
        tokens = max(0, count_of(used) - self._context)
        money = max(0.0, cost_of(cost) - self._cost)
        self._context += tokens
        self._cost += money
        if not self.is_replay and (tokens or money):
            self._spend(tokens, money)

    def _spend(self, tokens: int, cost: float) -> None:
        self._turn_tokens += tokens
        self.ctx.spend(tokens=tokens, cost=cost)

    # ---- what it says

    def _update(self, update: Mapping[str, Any]) -> None:
        kind = update.get("sessionUpdate")
        if self.is_over:
            return
        if kind == "usage_update":
            cost = mapping_of(update.get("cost"))
            self._count(update.get("used"), cost.get("amount") if cost.get("currency", "USD") == "USD" else None)
        elif self.is_replay:
            return
        elif kind == "agent_message_chunk":
            self._message(update)
        elif kind == "agent_thought_chunk":
            self._thought()
        elif kind in ("tool_call", "tool_call_update"):
            self._tool(update)
        elif kind == "plan":
            entries = items_of(update.get("entries"))[:200]
            tell_plan(self.ctx, [(_word(one.get("content")), _word(one.get("status"))) for one in entries])

    def _message(self, update: Mapping[str, Any]) -> None:
        text = _text_of(mapping_of(update.get("content")))
        if not text:
            return
        message_id = update.get("messageId")
        if message_id is not None and message_id != self._message_id:
            self._end_message()
            self.last.clear()
            self._message_id = message_id
        self.whole.add(text)
        self.last.add(text)
        self._buffer.add(text)

    def _thought(self) -> None:
        """Not forwarded, but a sign of life."""
        now = asyncio.get_running_loop().time()
        if now - self._thought_at >= THINKING_SECONDS:
            self._thought_at = now
            self.ctx.progress("It is thinking.")

    def _tool(self, update: Mapping[str, Any]) -> None:
        self._end_message()
        self.last.clear()  # text after a tool call is a new message
        call_id, status = _word(update.get("toolCallId")), _word(update.get("status"))
        self._tools.known(call_id, kind=_word(update.get("kind")), title=_word(update.get("title")))
        if status in OVER:
            self._tools.end(call_id, status)
        elif status == "in_progress" or update.get("rawInput"):  # many are announced before their purpose is known
            self._tools.begin(call_id)

    # ---- what it asks

    async def _permission(self, given: Mapping[str, Any]) -> dict[str, Any]:
        if self.is_over:
            return _CANCELLED
        asked = mapping_of(given.get("toolCall"))
        call_id = _word(asked.get("toolCallId"))
        call = self._tools.known(call_id, kind=_word(asked.get("kind")), title=_word(asked.get("title")))
        offered = items_of(given.get("options"))
        decision = decide(self._allow, call, offered)
        if decision.allowed:
            effects = (ACP_EFFECTS[call.kind],) if call.kind in ACP_EFFECTS else ()
            try:
                for facts in _facts(self.ctx, call, asked):
                    await self.ctx.permit(f"acp.{call.kind or 'other'}", effects=effects, tool=call.title, **facts)
            except Refused as refused:
                decision = _refuse(offered, f"the policy denies it: {refused.message}")
        self._end_message()
        word = "allowed" if decision.allowed else "denied"
        self._tools.decide(call_id, kind=call.kind, title=call.title, decision=word, because=decision.because)
        if decision.option_id is None:
            return _CANCELLED
        return {"outcome": {"outcome": "selected", "optionId": decision.option_id}}


def _word(value: Any) -> str:
    return value[:500] if isinstance(value, str) else ""


def _text_of(content: Mapping[str, Any]) -> str:
    text = content.get("text")
    if content.get("type") == "text" and isinstance(text, str):
        return text
    inner = mapping_of(content.get("resource")).get("text")
    return inner if isinstance(inner, str) else ""
