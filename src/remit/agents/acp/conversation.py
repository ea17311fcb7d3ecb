"""One process that speaks the Agent Client Protocol, and the one session held with it.

Opens, asks, cancels, closes; every wait but that for a turn's end is bounded here, that one by the delegation's deadline. Knows no
prompts and no returns (see `acp.agent`, which uses it). The process is started by our own pool, never by the library.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acp.connection import Connection
from acp.exceptions import RequestError
from acp.meta import AGENT_METHODS, PROTOCOL_VERSION
from acp.schema import ClientCapabilities, EnvVariable, FileSystemCapabilities, Implementation, McpServerStdio

from remit.agents.acp import faults
from remit.agents.acp.asking import asking, must_be_told
from remit.agents.acp.hearing import Hearing
from remit.agents.acp.lines import Lines
from remit.agents.acp.permission import OWN_TOOLS
from remit.agents.command.arguments import folder_of
from remit.agents.command.environment import environment_for
from remit.agents.definition import Definition
from remit.agents.own_tools import SERVER_NAME, server_command
from remit.agents.process.pool import ProcessPool
from remit.agents.process.program import Program
from remit.core.errors import AgentCrashed, RemitError, Stopped, Unavailable
from remit.flow.context import Context

START_SECONDS = 30.0
"""For an agent to say that it is there; of a short delegation a part, so that what is wrong is said before its deadline."""
START_SHARE = 1 / 3
LEAST_START_SECONDS = 2.0
SESSION_SECONDS = 60.0
"""For it to open a session: it starts its own servers then."""
CANCEL_SECONDS = 0.1
"""For the word to stop to be written; whoever waits for us is already owed an answer."""
_LAST_WORDS_SECONDS = 1.0
VENDOR = "acp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """How a prompt was answered."""

    stop_reason: str
    whole: str
    last: str
    """The last message alone."""


class Conversation:
    def __init__(self, definition: Definition, ctx: Context) -> None:
        self._definition = definition
        self._stack = contextlib.AsyncExitStack()
        self.hearing = Hearing(ctx, (*definition.allow, *(OWN_TOOLS if definition.delegates else ())))
        self._ctx = ctx
        self._capabilities: Mapping[str, Any] = {}
        self._ways_in: tuple[Mapping[str, Any], ...] = ()
        self._environment: dict[str, str] = {}
        self._asking_mode, self._must_be_told = "", False
        self._session_id = ""
        self.remembers = False
        """Whether the session is an earlier one, gone on with."""

    # ---- beginning and end

    async def open(self, pool: ProcessPool, *, start_seconds: float = START_SECONDS) -> None:
        """The process runs and has said that it speaks the protocol; or nothing is left, and the error says why."""
        try:
            told = asking(self._definition, self._ctx.scratch, environment_for(self._definition, self._ctx))
            self._environment, self._asking_mode = dict(told.environment), told.mode
            folder = folder_of(self._definition, self._ctx)
            argv = (*self._definition.command, *self._definition.options)
            program = Program(argv=argv, environment=self._environment, folder=folder, takes_input=True)
            self._process = await self._stack.enter_async_context(pool.spawn(program, self._ctx))
            assert self._process.stdin is not None
            self._lines = Lines(self._process.stdout, self._process.stdin)
            self._connection = Connection(self.hearing, self._lines)
            self._stack.push_async_callback(self._connection.close)
            await self._greet(start_seconds)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Everything of it is dead when this returns."""
        self.hearing.end()
        await self._stack.aclose()

    async def cancel(self) -> None:
        """Tell it to stop its turn. It is not waited for."""
        if self._session_id:
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(CANCEL_SECONDS):
                    await self._connection.send_notification(AGENT_METHODS["session_cancel"], {"sessionId": self._session_id})

    # ---- the session

    async def enter_session(self, earlier: Any) -> None:
        """The session that was kept, if there is one and the agent can go on with it; else a new one."""
        session_id = earlier.get("session") if isinstance(earlier, dict) and earlier.get("vendor") == VENDOR else None
        answer = await self._load(session_id) if isinstance(session_id, str) and session_id else None
        if answer is None:
            answer = await self._new()
            await self._ctx.checkpoint({"vendor": VENDOR, "session": self._session_id})
        await self._be_asked(answer)
        if self._definition.model:
            await self._choose_model(self._definition.model, answer)

    async def prompt(self, text: str) -> Turn:
        """Ask, and wait for the turn to end, however long."""
        self.hearing.begin_turn()
        params = {"sessionId": self._session_id, "prompt": [{"type": "text", "text": text}]}
        answer = await self._ask("session_prompt", params, None)
        self.hearing.end_turn()
        with contextlib.suppress(Stopped):
            self.hearing.count_turn(_mapping(answer.get("usage")).get("totalTokens"))
        return self.turn(str(answer.get("stopReason", "nothing")))

    def turn(self, stop_reason: str) -> Turn:
        """What was said so far."""
        return Turn(stop_reason=stop_reason, whole=self.hearing.whole.text(), last=self.hearing.last.text())

    # ---- how it is done

    async def _greet(self, seconds: float) -> None:
        capabilities = ClientCapabilities(fs=FileSystemCapabilities(read_text_file=False, write_text_file=False), terminal=False)
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": capabilities.model_dump(mode="json", by_alias=True, exclude_none=True, include={"fs", "terminal"}),
            "clientInfo": Implementation(name="remit", version=_version()).model_dump(mode="json", by_alias=True, exclude_none=True),
        }
        seconds = min(seconds, max(LEAST_START_SECONDS, self._ctx.remaining * START_SHARE))
        answer = await self._ask("initialize", params, round(seconds, 1))
        spoken = answer.get("protocolVersion")
        if spoken != PROTOCOL_VERSION:
            raise Unavailable(
                f"{self._definition.name} speaks version {str(spoken)[:40]} of the Agent Client Protocol, not {PROTOCOL_VERSION}.",
                advice="Install a version of it that speaks this one.",
            )
        self._must_be_told = must_be_told(answer)
        self._capabilities = _mapping(answer.get("agentCapabilities"))
        ways = answer.get("authMethods")
        self._ways_in = tuple(_mapping(way) for way in ways) if isinstance(ways, list) else ()

    async def _new(self) -> Mapping[str, Any]:
        try:
            answer = await self._ask("session_new", self._place(), SESSION_SECONDS)
        except Unavailable:
            if not await self._let_in():
                raise
            answer = await self._ask("session_new", self._place(), SESSION_SECONDS)
        session_id = answer.get("sessionId")
        if not isinstance(session_id, str) or not session_id:
            raise AgentCrashed(f"{self._definition.name} opened a session without an id.")
        self._session_id = session_id
        return answer

    async def _let_in(self) -> bool:
        """Only with a key that it was given in its environment: everything else needs a person."""
        for way in self._ways_in:
            names = [_mapping(one).get("name") for one in way.get("vars") or () if not _mapping(one).get("optional")]
            if way.get("type") == "env_var" and names and all(name in self._environment for name in names):
                await self._ask("authenticate", {"methodId": way.get("id")}, SESSION_SECONDS)
                return True
        return False

    async def _load(self, session_id: str) -> Mapping[str, Any] | None:
        if "resume" in _mapping(self._capabilities.get("sessionCapabilities")):
            method = "session_resume"
        elif self._capabilities.get("loadSession") is True:
            method = "session_load"
        else:
            self._ctx.progress(f"{self._definition.name} cannot go on with an earlier session; it begins a new one.")
            return None
        self.hearing.is_replay = True
        try:
            answer = await self._ask(method, {"sessionId": session_id, **self._place()}, SESSION_SECONDS)
        except AgentCrashed:
            raise
        except RemitError as error:
            self._ctx.progress(f"The earlier session could not be gone on with ({error.message}); a new one is begun.")
            return None
        finally:
            self.hearing.is_replay = False
        self._session_id, self.remembers = session_id, True
        return answer

    def _place(self) -> dict[str, Any]:
        servers = []
        if self._definition.delegates:
            told = [EnvVariable(name=name, value=value) for name, value in self._ctx.environment().items()]
            command, *arguments = server_command()
            server = McpServerStdio(name=SERVER_NAME, command=command, args=arguments, env=told)
            servers.append(server.model_dump(mode="json", by_alias=True, exclude_none=True))
        return {"cwd": str(folder_of(self._definition, self._ctx)), "mcpServers": servers}

    async def _be_asked(self, answer: Mapping[str, Any]) -> None:
        """In the mode in which it asks. A session that is gone on with comes back in the one it had, which anybody may have named."""
        for option in map(_mapping, _listed(answer.get("configOptions"))):
            if self._asking_mode in _values(option):
                if option.get("currentValue") != self._asking_mode:
                    await self._set_option(option, self._asking_mode)
                return
        modes = _mapping(answer.get("modes"))
        if any(_mapping(one).get("id") == self._asking_mode for one in _listed(modes.get("availableModes"))):
            if modes.get("currentModeId") != self._asking_mode:
                params = {"sessionId": self._session_id, "modeId": self._asking_mode}
                await self._ask("session_set_mode", params, SESSION_SECONDS)
            return
        if self._must_be_told:
            raise Unavailable(
                f"{self._definition.name} does not offer the mode in which it asks before it uses tools: nothing holds it to its list.",
                advice="Install a newer version of it.",
            )

    async def _set_option(self, option: Mapping[str, Any], value: str) -> None:
        params = {"sessionId": self._session_id, "configId": option.get("id"), "value": value}
        await self._ask("session_set_config_option", params, SESSION_SECONDS)

    async def _choose_model(self, model: str, answer: Mapping[str, Any]) -> None:
        """As the agent offers it: an option of the session, or, in older ones, a method of its own."""
        for option in map(_mapping, _listed(answer.get("configOptions"))):
            values = _values(option)
            if (option.get("category") or option.get("id")) == "model" and model in values:
                await self._set_option(option, model)
                return
        offered = map(_mapping, _listed(_mapping(answer.get("models")).get("availableModels")))
        if any(one.get("modelId") == model for one in offered):
            await self._ask("session_set_model", {"sessionId": self._session_id, "modelId": model}, SESSION_SECONDS)
            return
        self._ctx.progress(f"{self._definition.name} does not offer the model {model!r}; it goes on with its own.")

    async def _ask(self, method: str, params: dict[str, Any], seconds: float | None) -> Mapping[str, Any]:
        name = AGENT_METHODS.get(method, method.replace("_", "/", 1))
        try:
            async with asyncio.timeout(seconds):
                return _mapping(await self._connection.send_request(name, params))
        except TimeoutError:
            raise self._silent(name, seconds or 0.0) from None
        except ConnectionError:
            raise await self._lost(name) from None
        except RequestError as error:
            login = faults.login_advice(self._definition.name, self._definition.command, self._ways_in)
            raise faults.of_request(self._definition.name, name, error, login) from None

    def _silent(self, method: str, seconds: float) -> Unavailable:
        said = f" It said instead: {self._lines.first_noise}" if self._lines.first_noise else ""
        doubt = ": is this an ACP agent?" if method == AGENT_METHODS["initialize"] else "."
        return Unavailable(
            f"{self._definition.name} did not answer {method} within {seconds:g} seconds{doubt}{said}",
            advice=self._how_to_check(),
        )

    def _how_to_check(self) -> str:
        return (
            f"Check that `{' '.join(self._definition.command)}` starts an agent of the Agent Client Protocol: "
            "many need a word or option for it, such as `opencode acp`."
        )

    async def _lost(self, method: str) -> AgentCrashed:
        """It ended, or we had to stop listening to it."""
        if self._lines.fault:
            return AgentCrashed(f"{self._definition.name} cannot be spoken to: {self._lines.fault}.", advice=self._how_to_check())
        exit_code, tail = None, ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                exit_code = await self._process.wait()
                tail = self._process.stderr_tail()
        how = (
            "closed its output"
            if exit_code is None
            else f"was ended by signal {-exit_code}"
            if exit_code < 0
            else f"ended with exit code {exit_code}"
        )
        tail = tail or self._lines.first_noise
        return AgentCrashed(f"{self._definition.name} {how} before it answered {method}.", exit_code=exit_code, stderr_tail=tail)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _values(option: Mapping[str, Any]) -> set[str]:
    """What an option can be set to; the values may stand in groups."""
    found = set()
    for one in map(_mapping, _listed(option.get("options"))):
        found |= {str(inner.get("value")) for inner in map(_mapping, _listed(one.get("options")))} or {str(one.get("value"))}
    return found


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("remit")
    except PackageNotFoundError:
        return "0"
