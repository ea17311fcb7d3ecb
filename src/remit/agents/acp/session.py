"""One process that speaks the Agent Client Protocol: its session, its updates, and its permission requests.

Every wait is bounded here, except the wait for the end of a turn, which the deadline of the delegation bounds. The process pool starts the
process, not the protocol library."""

import asyncio
import contextlib
import json
import math
import re
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from importlib.metadata import version
from typing import Any, NamedTuple, TypeVar

import acp
from acp import schema
from acp.exceptions import RequestError
from pydantic import ValidationError

from remit.agents.command import environment_for, exit_words, folder_of
from remit.agents.definition import Definition
from remit.agents.process.command_process import Program, ProgramStarter
from remit.agents.transcript import OVER, Tail, TextBuffer, ToolCalls, Words
from remit.core.context import Context
from remit.core.errors import AgentCrashed, Failed, Refused, Stopped, Unavailable
from remit.core.policy import ACP_EFFECTS
from remit.system.interpreter import MCP_SERVER_NAME, mcp_server_command

# ---- permission

KINDS = frozenset({"read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"})
OWN_TOOLS = ("other:mcp__remit__*", "other:remit_*", "other:remit.*", "other:remit: *")
"""Names that agents give to the tools of remit's own server."""
_NAMED = frozenset({"read", "search", "think", "other"})
"""Kinds that may be allowed by title. The title of the others, also of kinds added later, may be a command or a path: text of the model."""
_JOINING = frozenset(";&|<>$`()\n\r")
"""Characters that join or embed commands."""
_GRANTS = ("allow_once", "allow_always")
"""In order of preference: a permanent grant is used only if nothing less is offered."""
_REFUSALS = ("reject_once", "reject_always")
_SEVERAL = ("paths", "files", "file_paths", "edits", "changes")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s`'\"<>]+")
_PATHS = ("path", "file_path", "filePath", "filepath", "abs_path", "notebook_path")


def allowing_pattern(allow: Sequence[str], kind: str, title: str) -> str | None:
    """The entry of the list that allows this tool call."""
    return next((pattern for pattern in allow if _fits(pattern, kind, title)), None)


def _fits(pattern: str, kind: str, title: str) -> bool:
    """The name of a kind matches that kind only: a command titled "read" is not a read. `execute:pytest *` matches pytest only: characters
    that join commands must be in the pattern itself."""
    if pattern in KINDS:
        return pattern == kind
    of_kind, colon, of_title = pattern.partition(":")
    if not colon or of_kind not in KINDS:
        return fnmatchcase(kind, pattern) or (kind in _NAMED and fnmatchcase(title, pattern))
    title = title.strip()
    if title.startswith("`") and title.endswith("`"):  # as some agents write a command
        title = title.strip("`").strip()
    is_joined = kind == "execute" and of_title != "*" and not _JOINING & set(title) <= set(of_title)
    return of_kind == kind and not is_joined and fnmatchcase(title, of_title)


def offered_option(options: Sequence[schema.PermissionOption], kinds: Sequence[str]) -> str | None:
    return next((one.option_id for kind in kinds for one in options if one.kind == kind), None)


def facts_of(kind: str, title: str, call: schema.ToolCallUpdate) -> Iterator[dict[str, Any]]:
    """Its command; else its URL and each named path."""
    given: Mapping[str, Any] = call.raw_input if isinstance(call.raw_input, dict) else {}
    listed = [getattr(one, "path", None) for one in (*(call.locations or ()), *(call.content or ()))]
    found = [("path", path) for path in dict.fromkeys((*listed, *_named_paths(given))) if isinstance(path, str)]
    address = given["url"] if isinstance(given.get("url"), str) else None
    if address is None and (kind == "fetch" or "url" in given):
        address = next(iter(_ADDRESS.findall(title)), None)
    found += [("url", address)] if address is not None else []
    if kind == "execute":
        found = [("command", given["command"] if isinstance(given.get("command"), str | list) else title.strip().strip("`"))]
    yield from ({name: value} for name, value in found) if found else [{}]


def _named_paths(given: Mapping[str, Any]) -> Iterator[str]:
    """Also in a list of paths or of operations on them, or keyed by path."""
    yield from (given[name] for name in _PATHS if isinstance(given.get(name), str))
    for name in _SEVERAL:
        several = given.get(name)
        for one in several if isinstance(several, list | dict) else ():
            yield from [one] if isinstance(one, str) else _named_paths(one) if isinstance(one, dict) else ()


# ---- updates

THINKING_SECONDS = 5.0


class Listener:
    """The client of the protocol: the library calls it for each update and permission request."""

    def __init__(self, ctx: Context, allow: Sequence[str]) -> None:
        self._ctx = ctx
        self._allow = allow
        self.is_replay = False
        """While a session is loaded the agent repeats earlier output, which is ignored."""
        self.is_over = False
        self.whole, self.last = Tail(), Tail()
        self._message_id: str | None = None
        self._tools = ToolCalls(ctx)
        self._known: dict[str, tuple[str, str]] = {}
        """Kind and title of each tool call: later reports omit them."""
        self._words = Words(ctx)
        self._buffer = TextBuffer(self._words.say)
        self._thought_at = -math.inf
        self._context, self._cost, self._turn_tokens = 0, 0.0, 0
        """Tokens and cost of the session as counted by the agent, and tokens spent in this turn."""

    def begin_turn(self) -> None:
        self.whole.clear()
        self.last.clear()
        self._message_id, self._turn_tokens = None, 0

    def end_turn(self, tokens: int) -> None:
        """Its last message is its answer. `tokens` of the turn: those that were not drawn while it ran are drawn now."""
        with contextlib.suppress(Stopped):
            self._buffer.flush()
            self._words.end_turn()
            self._spend(max(0, tokens - self._turn_tokens), 0.0)

    def end(self) -> None:
        """Ignore everything from now on."""
        with contextlib.suppress(Stopped):
            self._end_message()
        self.is_over = True

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        with contextlib.suppress(Stopped):  # the delegation may have ended
            if not self.is_over:
                self._take(update)

    def _take(self, update: Any) -> None:
        match update:
            case schema.UsageUpdate():
                cost = update.cost.amount if update.cost is not None and update.cost.currency == "USD" else 0.0
                tokens, money = max(0, update.used - self._context), max(0.0, cost - self._cost)
                self._context, self._cost = self._context + tokens, self._cost + money
                if not self.is_replay:
                    self._spend(tokens, money)
            case _ if self.is_replay:
                pass
            case schema.AgentMessageChunk(content=schema.TextContentBlock(text=text)):
                if update.message_id is not None and update.message_id != self._message_id:
                    self._end_message()
                    self.last.clear()
                    self._message_id = update.message_id
                for kept in (self.whole, self.last, self._buffer):
                    kept.add(text)
            case schema.AgentThoughtChunk():  # not forwarded, but a sign of life
                now = asyncio.get_running_loop().time()
                if now - self._thought_at >= THINKING_SECONDS:
                    self._thought_at = now
                    self._ctx.progress("It is thinking.")
            case schema.ToolCallStart() | schema.ToolCallProgress():
                self._end_message()
                self.last.clear()  # text after a tool call is a new message
                kind, title = self._describe(update)
                if update.status in OVER:
                    self._tools.end(update.tool_call_id, update.status, kind=kind, title=title)
                elif update.status == "in_progress" or update.raw_input:  # many are announced before their purpose is known
                    self._tools.begin(update.tool_call_id, kind, title)

    def _describe(self, call: Any) -> tuple[str, str]:
        kind, title = self._known.get(call.tool_call_id, ("other", ""))
        self._known[call.tool_call_id] = found = call.kind or kind, (call.title or title)[:500]
        return found

    def _end_message(self) -> None:
        self._buffer.flush()
        self._words.end_message()

    def _spend(self, tokens: int, cost: float) -> None:
        self._turn_tokens += tokens
        if tokens or cost:
            self._ctx.spend(tokens=tokens, cost=cost)

    async def request_permission(
        self, session_id: str, tool_call: schema.ToolCallUpdate, options: list[schema.PermissionOption], **_: Any
    ) -> schema.RequestPermissionResponse:
        outcome: Any = schema.DeniedOutcome(outcome="cancelled")
        with contextlib.suppress(Stopped):
            if not self.is_over and (chosen := await self._decide(tool_call, options)) is not None:
                outcome = schema.AllowedOutcome(outcome="selected", option_id=chosen)
        return schema.RequestPermissionResponse(outcome=outcome)

    async def _decide(self, call: schema.ToolCallUpdate, options: Sequence[schema.PermissionOption]) -> str | None:
        """The option to answer with: by the allow-list, then by the policy."""
        kind, title = self._describe(call)
        pattern, granted = allowing_pattern(self._allow, kind, title), offered_option(options, _GRANTS)
        fault = "nothing in its allow-list fits" if pattern is None else "" if granted else "it offered no answer that allows it"
        try:
            for facts in () if fault else facts_of(kind, title, call):
                effects = (ACP_EFFECTS[kind],) if kind in ACP_EFFECTS else ()
                await self._ctx.permit(f"acp.{kind}", effects=effects, tool=title, **facts)
        except Refused as refused:
            fault = f"the policy denies it: {refused.message}"
        self._end_message()
        if fault:
            self._tools.deny(call.tool_call_id, kind, title, fault)
            return offered_option(options, _REFUSALS)
        self._ctx.emit({"permission": {"kind": kind, "title": title, "decision": "allowed", "because": f"allowed by {pattern!r}"}})
        return granted


# ---- the process and its session

START_SECONDS, SESSION_SECONDS, CANCEL_SECONDS = 30.0, 60.0, 0.1
"""Time limits to initialize (at most a third of what is left, at least 2 s), to open a session, and to send a cancellation."""
AUTH_REQUIRED = -32000
NOISE_LIMIT = 1000
VENDOR = "acp"
_WORDS_CHARACTERS = 700
_Answer = TypeVar("_Answer")


class Lines:
    """The library's `Transport`, bounded: it reads no endless line, no endless noise, and lets other tasks run during a flood."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.noise: list[str] = []
        """Lines that are not messages: some agents print a greeting."""

    async def send(self, message: dict[str, Any]) -> None:
        self._writer.write((json.dumps(message, separators=(",", ":")) + "\n").encode())
        await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        while len(self.noise) < NOISE_LIMIT:
            await asyncio.sleep(0)
            try:
                line = await self._reader.readline()
                message = json.loads(line) if line else None
            except (ValueError, RecursionError):
                message = ""
            if message is None or isinstance(message, dict):
                return message
            self.noise.append(line.decode(errors="replace").strip()[:200])
        return None

    async def close(self) -> None:
        """The owner of the process closes the pipes."""


class Turn(NamedTuple):
    """The answer to a prompt; `last`: the last message alone."""

    stop_reason: str
    whole: str
    last: str


class Session:
    def __init__(self, definition: Definition, ctx: Context) -> None:
        self._definition, self._ctx = definition, ctx
        self._stack = contextlib.AsyncExitStack()
        self.listener = Listener(ctx, (*definition.allow, *(OWN_TOOLS if definition.delegates else ())))
        self._can_load = False
        self._session_id = ""
        self.remembers = False
        """Whether an earlier session is continued."""

    async def open(self, pool: ProgramStarter) -> None:
        """Start the process and initialize the protocol."""
        definition, ctx = self._definition, self._ctx
        argv = (*definition.command, *definition.options)
        program = Program(argv=argv, environment=environment_for(definition, ctx), folder=folder_of(definition, ctx), takes_input=True)
        self._process = await self._stack.enter_async_context(pool.spawn(program, ctx))
        assert self._process.stdin is not None
        self._lines = Lines(self._process.stdout, self._process.stdin)
        client: Any = self.listener
        self._agent = acp.connect_to_agent(client, self._lines)
        self._stack.push_async_callback(self._agent.close)
        seconds = round(min(START_SECONDS, max(2.0, ctx.remaining / 3)), 1)
        about = schema.Implementation(name="remit", version=version("remit"))
        answer = await self._call("initialize", self._agent.initialize(acp.PROTOCOL_VERSION, client_info=about), seconds)
        self._can_load = answer.agent_capabilities is not None and bool(answer.agent_capabilities.load_session)
        if answer.agent_info is not None and answer.agent_info.name.lower() == "opencode":
            fault = f"{definition.name} is OpenCode, which obeys the settings of the project before this list of tools."
            raise Unavailable(fault, advice='Declare it with kind = "opencode".')
        if (spoken := answer.protocol_version) != acp.PROTOCOL_VERSION:
            fault = f"{definition.name} speaks version {spoken} of the Agent Client Protocol, not {acp.PROTOCOL_VERSION}."
            raise Unavailable(fault, advice="Install a version of it that speaks this one.")

    async def close(self) -> None:
        """Everything of it is dead when this returns."""
        self.listener.end()
        await self._stack.aclose()

    async def cancel(self) -> None:
        """Ask it to stop its turn, without waiting."""
        if self._session_id:
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(CANCEL_SECONDS):
                    await self._agent.cancel(self._session_id)

    async def enter_session(self, earlier: Any) -> None:
        """Continue the earlier session if there is one and the agent supports it; else open a new one."""
        definition, agent = self._definition, self._agent
        folder, servers = str(folder_of(definition, self._ctx)), self._servers()
        known = earlier.get("session") if isinstance(earlier, dict) and earlier.get("vendor") == VENDOR else None
        if isinstance(known, str) and known and self._can_load:
            self.listener.is_replay = True
            try:
                await self._call("session/load", agent.load_session(folder, known, mcp_servers=servers), SESSION_SECONDS)
                self._session_id, self.remembers = known, True
                return
            except (Failed, Unavailable) as error:
                self._ctx.progress(f"The earlier session could not be continued ({error.message}); a new one is started.")
            finally:
                self.listener.is_replay = False
        elif known:
            self._ctx.progress(f"{definition.name} cannot continue an earlier session; it starts a new one.")
        new = await self._call("session/new", agent.new_session(folder, mcp_servers=servers), SESSION_SECONDS)
        self._session_id = new.session_id
        await self._ctx.checkpoint({"vendor": VENDOR, "session": self._session_id})

    def _servers(self) -> list[Any]:
        if not self._definition.delegates:
            return []
        command, *arguments = mcp_server_command()
        variables = [schema.EnvVariable(name=name, value=value) for name, value in self._ctx.environment().items()]
        return [schema.McpServerStdio(name=MCP_SERVER_NAME, command=command, args=arguments, env=variables)]

    async def prompt(self, text: str) -> Turn:
        """Send a prompt and wait for the turn to end, without a time limit."""
        self.listener.begin_turn()
        asked = self._agent.prompt(self._session_id, [acp.text_block(text)])
        answer = await self._call("session/prompt", asked, None)
        self.listener.end_turn(0 if answer.usage is None else answer.usage.total_tokens)
        return Turn(answer.stop_reason, self.listener.whole.text(), self.listener.last.text())

    async def _call(self, method: str, request: Awaitable[_Answer], seconds: float | None) -> _Answer:
        name, noise = self._definition.name, self._lines.noise
        advice = f"Check that `{' '.join(self._definition.command)}` starts an agent of the Agent Client Protocol: many need a word for it."
        try:
            async with asyncio.timeout(seconds):
                return await request
        except (TimeoutError, ConnectionError) as error:
            said = f" It printed: {noise[0]}" if noise else ""
            if isinstance(error, TimeoutError):
                raise Unavailable(f"{name} did not answer {method} within {seconds:g} seconds.{said}", advice=advice) from None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    said = f" It {exit_words(await self._process.wait())}.{said}"
            fault = f"The connection to {name} ended before it answered {method}.{said}"
            raise AgentCrashed(fault, stderr_tail=self._process.stderr_tail(), advice=advice) from None
        except (RequestError, ValidationError) as error:
            words = f"{error} {getattr(error, 'data', None) or ''}".strip()[:_WORDS_CHARACTERS]
            if getattr(error, "code", None) == AUTH_REQUIRED:
                how = f'Log in once with {self._definition.command[0]} itself, or pass its key: pass_environment = ["…_API_KEY"].'
                raise Unavailable(f"{name} is not logged in: {words}.", advice=how) from None
            raise Failed(f"{name} answered {method} with an error: {words}.", advice=f"See the log of {name} for details.") from None
