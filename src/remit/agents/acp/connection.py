"""One process that speaks the Agent Client Protocol, and its session.

Opens, asks, cancels and closes. Every wait is bounded here, except the wait for the end of a turn, which the deadline of the delegation
bounds. Independent of prompts and returns; used by `acp.agent`. The process pool starts the process, not the protocol library."""

import asyncio
import contextlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from acp.connection import Connection
from acp.exceptions import RequestError
from acp.meta import AGENT_METHODS, PROTOCOL_VERSION
from acp.schema import EnvVariable, McpServerStdio

from remit.agents.acp.updates import OWN_TOOLS, Listener
from remit.agents.coding.dialects import CONTENT, EVERYTHING, FREE, HYGIENE, NEVER_PASSED, config_of, items_of, mapping_of
from remit.agents.command import environment_for, exit_words, folder_of, without_variables
from remit.agents.definition import Definition
from remit.agents.process.command_process import Program, ProgramStarter
from remit.core.context import Context
from remit.core.errors import AgentCrashed, Failed, RemitError, Unavailable
from remit.system.interpreter import MCP_SERVER_NAME, mcp_server_command

AUTH_REQUIRED = -32000
NOISE_LIMIT = 1000
"""Maximum lines that are not messages: some agents print a greeting; one that continues does not speak the protocol."""
_BREATH = 32
"""Lines after which other tasks may run: a flood must not block the loop."""


class Lines:
    """The library's `Transport`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._lines = 0
        self.noise: list[str] = []
        self.fault = ""
        """Why reading stopped, if the agent did not end."""

    async def send(self, message: dict[str, Any]) -> None:
        try:
            self._writer.write((json.dumps(message, separators=(",", ":")) + "\n").encode())
            await self._writer.drain()
        except (ConnectionError, RuntimeError) as error:
            if "method" in message:  # a lost answer does no harm; a question would never be answered
                raise ConnectionError("it no longer reads its input") from error

    async def receive(self) -> dict[str, Any] | None:
        while len(self.noise) < NOISE_LIMIT:
            try:
                line = await self._reader.readline()
            except ValueError:
                self.fault = "it sent a line of many megabytes, without end"
                return None
            except ConnectionError:
                return None
            if not line:
                return None
            self._lines += 1
            if self._lines % _BREATH == 0:
                await asyncio.sleep(0)
            with contextlib.suppress(ValueError, RecursionError):
                message = json.loads(line)
                if isinstance(message, dict):
                    if not isinstance(error := message.get("error", {}), dict):  # the library would lose the request
                        message["error"] = {"code": -32603, "message": str(error)[:_WORDS_CHARACTERS]}
                    return message
            if shown := line.decode(errors="replace").strip():
                self.noise.append(shown[:200])
        self.fault = f"it does not speak the Agent Client Protocol; it printed: {self.noise[0]}"
        return None

    async def close(self) -> None:
        """The owner of the process closes the pipes."""


# ---- settings that make an agent ask


def asking_mode(definition: Definition, scratch: Path, environment: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """The whole environment of the process, and the mode in which it asks for permission; its session must be in it.

    `environment`: without our settings."""
    # Settings of a named agent override general ones, and a project can name any agent it knows: so remit defines its own agent with a new
    # name each time.
    mode = f"remit-{secrets.token_hex(8)}"
    permission = _permission(definition, scratch)
    config = config_of(mode, permission, default_agent=mode)
    # If everything is allowed, subagents need not ask: they would wait for an answer until the timeout.
    everybody = {**permission, "*": "allow"} if EVERYTHING in definition.allow else permission
    settings = {"OPENCODE_PERMISSION": json.dumps(everybody), CONTENT: json.dumps(config)}
    return {**HYGIENE, **without_variables(environment, NEVER_PASSED, definition), **settings}, mode


def _permission(definition: Definition, scratch: Path) -> dict[str, object]:
    permission: dict[str, object] = {"*": "ask", **dict.fromkeys(FREE, "allow")}
    # A refusal by remit ends its turn; a refusal by its own settings is an error that it can handle.
    permission |= {"question": "deny", "doom_loop": "deny", "external_directory": {"*": "deny", f"{scratch}/**": "allow"}}
    # Its subagents are configured elsewhere, and their permission requests do not reach remit.
    permission["task"] = "ask" if EVERYTHING in definition.allow else "deny"
    if definition.delegates:
        permission["remit_*"] = "allow"
    return permission


# ---- the session

START_SECONDS = 30.0
"""Time limit for initialization; less for a short delegation, so that the fault is reported before its deadline."""
START_SHARE = 1 / 3
LEAST_START_SECONDS = 2.0
SESSION_SECONDS = 60.0
"""Time limit to open a session, in which it starts its own servers."""
CANCEL_SECONDS = 0.1
"""Time limit to send the cancellation; the caller is waiting."""
_LAST_WORDS_SECONDS = 1.0
_WORDS_CHARACTERS = 700
VENDOR = "acp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The answer to a prompt."""

    stop_reason: str
    whole: str
    last: str
    """The last message alone."""


class Session:
    def __init__(self, definition: Definition, ctx: Context) -> None:
        self._definition = definition
        self._stack = contextlib.AsyncExitStack()
        self.listener = Listener(ctx, (*definition.allow, *(OWN_TOOLS if definition.delegates else ())))
        self._ctx = ctx
        self._capabilities: Mapping[str, Any] = {}
        self._asking_mode, self._is_opencode = "", False
        self._session_id = ""
        self.remembers = False
        """Whether an earlier session is continued."""

    # ---- beginning and end

    async def open(self, pool: ProgramStarter) -> None:
        """Start the process and initialize the protocol. On failure nothing is left running, and the error gives the reason."""
        try:
            given = environment_for(self._definition, self._ctx)
            environment, self._asking_mode = asking_mode(self._definition, self._ctx.scratch, given)
            folder = folder_of(self._definition, self._ctx)
            argv = (*self._definition.command, *self._definition.options)
            program = Program(argv=argv, environment=environment, folder=folder, takes_input=True)
            self._process = await self._stack.enter_async_context(pool.spawn(program, self._ctx))
            assert self._process.stdin is not None
            self._lines = Lines(self._process.stdout, self._process.stdin)
            self._connection = Connection(self.listener, self._lines)
            self._stack.push_async_callback(self._connection.close)
            await self._initialize()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Everything of it is dead when this returns."""
        self.listener.end()
        await self._stack.aclose()

    async def cancel(self) -> None:
        """Ask it to stop its turn, without waiting."""
        if self._session_id:
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(CANCEL_SECONDS):
                    await self._connection.send_notification(AGENT_METHODS["session_cancel"], {"sessionId": self._session_id})

    # ---- the session

    async def enter_session(self, earlier: Any) -> None:
        """Continue the earlier session if there is one and the agent supports it; else open a new one."""
        session_id = earlier.get("session") if isinstance(earlier, dict) and earlier.get("vendor") == VENDOR else None
        answer = await self._load(session_id) if isinstance(session_id, str) and session_id else None
        if answer is None:
            answer = await self._new()
            await self._ctx.checkpoint({"vendor": VENDOR, "session": self._session_id})
        # A continued session has its earlier mode, which anyone may have set.
        if not await self._set_option(answer, self._asking_mode) and self._is_opencode:
            raise Unavailable(
                f"{self._definition.name} does not offer the mode in which it asks before using tools: its list of tools is not enforced.",
                advice="Install a newer version of it.",
            )
        model = self._definition.model
        if model and not await self._set_option(answer, model, "model"):
            self._ctx.progress(f"{self._definition.name} does not offer the model {model!r}; it uses its own.")

    async def prompt(self, text: str) -> Turn:
        """Send a prompt and wait for the turn to end, without a time limit."""
        self.listener.begin_turn()
        params = {"sessionId": self._session_id, "prompt": [{"type": "text", "text": text}]}
        answer = await self._ask("session_prompt", params, None)
        self.listener.end_turn(mapping_of(answer.get("usage")).get("totalTokens"))
        stop_reason = str(answer.get("stopReason", "nothing"))
        return Turn(stop_reason=stop_reason, whole=self.listener.whole.text(), last=self.listener.last.text())

    # ---- how it is done

    async def _initialize(self) -> None:
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False},
            "clientInfo": {"name": "remit", "version": version("remit")},
        }
        seconds = min(START_SECONDS, max(LEAST_START_SECONDS, self._ctx.remaining * START_SHARE))
        answer = await self._ask("initialize", params, round(seconds, 1))
        spoken = answer.get("protocolVersion")
        if spoken != PROTOCOL_VERSION:
            raise Unavailable(
                f"{self._definition.name} speaks version {str(spoken)[:40]} of the Agent Client Protocol, not {PROTOCOL_VERSION}.",
                advice="Install a version of it that speaks this one.",
            )
        self._is_opencode = str(mapping_of(answer.get("agentInfo")).get("name", "")).lower() == "opencode"
        self._capabilities = mapping_of(answer.get("agentCapabilities"))

    async def _new(self) -> Mapping[str, Any]:
        answer = await self._ask("session_new", self._place(), SESSION_SECONDS)
        session_id = answer.get("sessionId")
        if not isinstance(session_id, str) or not session_id:
            raise AgentCrashed(f"{self._definition.name} opened a session without an id.")
        self._session_id = session_id
        return answer

    async def _load(self, session_id: str) -> Mapping[str, Any] | None:
        if "resume" in mapping_of(self._capabilities.get("sessionCapabilities")):
            method = "session_resume"
        elif self._capabilities.get("loadSession") is True:
            method = "session_load"
        else:
            self._ctx.progress(f"{self._definition.name} cannot continue an earlier session; it starts a new one.")
            return None
        self.listener.is_replay = True
        try:
            answer = await self._ask(method, {"sessionId": session_id, **self._place()}, SESSION_SECONDS)
        except AgentCrashed:
            raise
        except RemitError as error:
            self._ctx.progress(f"The earlier session could not be continued ({error.message}); a new one is started.")
            return None
        finally:
            self.listener.is_replay = False
        self._session_id, self.remembers = session_id, True
        return answer

    def _place(self) -> dict[str, Any]:
        servers = []
        if self._definition.delegates:
            variables = [EnvVariable(name=name, value=value) for name, value in self._ctx.environment().items()]
            command, *arguments = mcp_server_command()
            server = McpServerStdio(name=MCP_SERVER_NAME, command=command, args=arguments, env=variables)
            servers.append(server.model_dump(mode="json", by_alias=True, exclude_none=True))
        return {"cwd": str(folder_of(self._definition, self._ctx)), "mcpServers": servers}

    async def _set_option(self, answer: Mapping[str, Any], value: str, category: str = "") -> bool:
        """Set the session option that offers this value. Returns whether one does."""
        for option in items_of(answer.get("configOptions")):
            is_meant = not category or (option.get("category") or option.get("id")) == category
            if is_meant and value in _values(option):
                if option.get("currentValue") != value:
                    params = {"sessionId": self._session_id, "configId": option.get("id"), "value": value}
                    await self._ask("session_set_config_option", params, SESSION_SECONDS)
                return True
        return False

    async def _ask(self, method: str, params: dict[str, Any], seconds: float | None) -> Mapping[str, Any]:
        method, name = AGENT_METHODS[method], self._definition.name
        try:
            async with asyncio.timeout(seconds):
                return mapping_of(await self._connection.send_request(method, params))
        except TimeoutError:
            said = f" It printed instead: {self._lines.noise[0]}" if self._lines.noise else ""
            raise Unavailable(f"{name} did not answer {method} within {seconds:g} seconds.{said}", advice=self._how_to_check()) from None
        except ConnectionError:
            raise await self._lost(method) from None
        except RequestError as error:
            words = f"{error}{f': {error.data}' if error.data else ''}"[:_WORDS_CHARACTERS]
            if error.code == AUTH_REQUIRED:
                advice = f'Log in once with {self._definition.command[0]} itself, or pass its key: pass_environment = ["…_API_KEY"].'
                raise Unavailable(f"{name} is not logged in: {words}.", advice=advice) from None
            raise Failed(
                f"{name} answered {method} with an error: {words} ({error.code}).", advice=f"See the log of {name} for details."
            ) from None

    def _how_to_check(self) -> str:
        return (
            f"Check that `{' '.join(self._definition.command)}` starts an agent of the Agent Client Protocol: "
            "many need a word or option for it, such as `opencode acp`."
        )

    async def _lost(self, method: str) -> AgentCrashed:
        """It ended, or reading had to stop."""
        if self._lines.fault:
            return AgentCrashed(f"The connection to {self._definition.name} failed: {self._lines.fault}.", advice=self._how_to_check())
        exit_code, tail = None, "\n".join(self._lines.noise[:1])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                exit_code = await self._process.wait()
                tail = self._process.stderr_tail() or tail
        how = "closed its output" if exit_code is None else exit_words(exit_code)
        return AgentCrashed(f"{self._definition.name} {how} before it answered {method}.", exit_code=exit_code, stderr_tail=tail)


def _values(option: Mapping[str, Any]) -> set[str]:
    """Values of an option; they may be grouped."""
    found = set()
    for one in items_of(option.get("options")):
        found |= {str(inner.get("value")) for inner in items_of(one.get("options"))} or {str(one.get("value"))}
    return found
