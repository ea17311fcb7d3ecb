"""The vendors' command lines and event streams: Claude Code, Codex and OpenCode, each a `Dialect`.

A dialect builds the command line of a turn, with the allow-list in the vendor's format, and parses each line of output. Used by
`coding.agent`; `acp.connection` also uses the settings of OpenCode."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.agents.definition import Definition
from remit.agents.model_agents import tool_and_uses
from remit.core.agents import WorkspaceKind
from remit.models.prices import TokenUsage
from remit.system.beneath import open_regular
from remit.system.interpreter import MCP_SERVER_NAME, NETWORK, mcp_server_command

if TYPE_CHECKING:
    from remit.agents.coding.coding_agent import Listener

# ---- dialects and their events

REMIT_PREFIX = "REMIT_"
"""Prefix of remit's own variables."""
_DETAIL_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One prompt for the vendor's program, in a new or an existing session."""

    definition: Definition
    environment: Mapping[str, str]
    """The environment without the vendor's own settings, which the user overrides."""
    folder: Path
    scratch: Path
    delegation_id: str
    session: str | None = None
    """The vendor's session to continue."""
    is_contained: bool = False
    """Whether it runs in a container."""
    is_limited: bool = False
    """Whether its budget limits tokens or money: its usage must be known immediately."""


CommandLine = tuple[list[str], dict[str, str]]
"""The program with its arguments, but without the prompt, which is written to standard input; and its whole environment."""


class Scope(StrEnum):
    """What a token count covers: all input tokens, cached ones included, and output tokens."""

    ITEM = "item"
    """One message or step, identified by its key; a repetition replaces the earlier value."""
    RUN = "run"
    """All since the start of the program."""
    SESSION = "session"
    """All since the start of the session, earlier runs included."""


class Dialect:
    vendor: str
    """Also the name of its program."""
    variables: Sequence[str]
    """Names (or patterns) of variables that configure it and are passed on."""
    never_passed: Sequence[str]
    """Names (or patterns) of variables that make it believe that it runs inside another session."""
    hand_in_seconds = 5.0
    """Minimum time for another question: with less left, it is not interrupted."""

    def command_line(self, turn: Turn) -> CommandLine:
        raise NotImplementedError

    def read(self, line: Mapping[str, Any], to: "Listener") -> None:
        """Report a line of its output."""
        raise NotImplementedError

    def rollouts(self, environment: Mapping[str, str]) -> Path | None:
        """Folder of files in which it records the usage of each request; None: its stream contains it."""
        return None

    def _program(self, turn: Turn) -> list[str]:
        return list(turn.definition.command or (self.vendor,))


NETWORK_VARIABLES = (*NETWORK, "XDG_*")


def remit_variables(turn: Turn) -> list[str]:
    """Variables from which remit's server knows the parent delegation. By name only: their values must not be in a file or argument."""
    return sorted(name for name in turn.environment if name.startswith(REMIT_PREFIX))


def detail_of(value: Any) -> str:
    """The most informative part of a tool's input, on one line."""
    if isinstance(value, Mapping):
        named = ("command", "cmd", "file_path", "filePath", "path", "pattern", "url", "query", "target", "agent", "description", "prompt")
        chosen = next((value[name] for name in named if isinstance(value.get(name), str)), None)
        value = chosen if chosen is not None else json.dumps(value, ensure_ascii=False, default=str)
    return " ".join(str(value).split())[:_DETAIL_CHARACTERS]


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def mapping_of(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def items_of(value: Any) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def count_of(value: Any) -> int:
    """A token count, or 0 if invalid."""
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12 else 0


def cost_of(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9 else 0.0


def status_of(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 100 <= value < 600 else None


# ---- allow-lists

EVERYTHING = "*"
_CLAUDE: Mapping[str, tuple[str, ...]] = {
    "read": ("Read", "Glob", "Grep"),
    "search": ("Glob", "Grep"),
    "edit": ("Edit", "Write", "NotebookEdit"),
    "execute": ("Bash",),
    "fetch": ("WebFetch", "WebSearch"),
    **dict.fromkeys(("delete", "move", "think", "switch_mode", "other"), ()),
}
"""Claude's tools of each kind."""
_OPENCODE: Mapping[str, tuple[str, ...]] = {
    "read": ("read", "list"),
    "search": ("glob", "grep", "list"),
    "execute": ("bash",),
    "fetch": ("webfetch", "websearch"),
    "agent": ("task",),
    **dict.fromkeys(("think", "switch_mode", "other"), ()),
    **dict.fromkeys(("edit", "delete", "move", "write", "multiedit", "notebookedit", "patch"), ("edit",)),
    **{name: (name,) for name in ("bash", "glob", "grep", "webfetch", "websearch", "task", "todowrite", "skill")},
}
"""OpenCode's permissions for each kind, and for tools of other vendors."""
_FREE = ("read", "glob", "grep", "list", "todowrite", "todoread", "skill")
"""Tools that opencode uses without asking; they change nothing."""
_CHANGING = frozenset({"edit", "delete", "move", "execute", "bash", "write", "multiedit", "notebookedit", "patch"})


def for_claude(allow: Sequence[str]) -> list[str]:
    """Rules for `--allowedTools`."""
    rules: list[str] = []
    for entry in allow:
        name, uses = tool_and_uses(entry)
        if entry.strip() == EVERYTHING:
            rules += [tool for tools in _CLAUDE.values() for tool in tools]
        elif name not in _CLAUDE:
            rules.append(entry.strip())
        elif uses is None:
            rules += _CLAUDE[name]
        elif name == "execute":
            rules.append(f"Bash({uses})")
    return list(dict.fromkeys(rules))


def for_opencode(allow: Sequence[str], scratch_pattern: str) -> dict[str, object]:
    """The table `permission` of its configuration: the last matching rule decides."""
    table: dict[str, object] = {"*": "deny", **dict.fromkeys(_FREE, "allow")}
    table["external_directory"] = {"*": "deny", scratch_pattern: "allow"}
    for name, uses in map(tool_and_uses, allow):
        for tool in _OPENCODE.get(name.lower(), (name,)):
            rules = table.get(tool)
            if uses is None:
                table[tool] = "allow"
            elif rules != "allow":
                table[tool] = {**(rules if isinstance(rules, dict) else {"*": "deny"}), uses.replace(":*", " *"): "allow"}
    return table


def may_change(allow: Sequence[str]) -> bool:
    """For a vendor with a sandbox instead of a list: whether it may write in its workspace. An empty list permits it."""
    return not allow or any(tool_and_uses(entry)[0].lower() in (EVERYTHING, *_CHANGING) for entry in allow)


def may_fetch(allow: Sequence[str]) -> bool:
    return any(tool_and_uses(entry)[0].lower() in (EVERYTHING, "fetch", "webfetch") for entry in allow)


# ---- Claude Code

_HYGIENE = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
}
START_MILLISECONDS = "60000"
"""Time for remit's server to start on a busy machine."""
_HOPELESS = (401, 403)
"""It retries ten times, for minutes, even if its key is wrong."""
_INTERRUPTED = ("aborted_tools", "aborted_streaming")


class Claude(Dialect):
    vendor = "claude"
    variables = ("ANTHROPIC_*", "CLAUDE_*", "DISABLE_*", "MCP_*", "ENABLE_TOOL_SEARCH", *NETWORK_VARIABLES)
    never_passed = (
        "CLAUDECODE",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_SESSION_*",
        "CLAUDE_CODE_SSE_PORT",
        "CLAUDE_CODE_CHILD_*",
        "CLAUDE_PROJECT_DIR",
    )

    def __init__(self) -> None:
        self._begun: dict[str, Mapping[str, Any]] = {}
        """Messages that are not complete yet."""

    def command_line(self, turn: Turn) -> CommandLine:
        definition = turn.definition
        argv = [*self._program(turn), "-p", "--output-format", "stream-json", "--verbose"]
        if turn.is_limited:  # a message is reported at its start; its usage is known at its end, before its tools run
            argv.append("--include-partial-messages")
        # Everything not allowed is denied without asking, even if the user's own settings allow everything.
        argv += ["--permission-mode", "dontAsk"]
        if turn.session is not None:
            argv += ["--resume", turn.session]
        if definition.model:
            argv += ["--model", definition.model]
        if not turn.scratch.is_relative_to(turn.folder):
            argv += ["--add-dir", str(turn.scratch)]
        allowed = for_claude(definition.allow)
        environment = dict(_HYGIENE)
        if definition.delegates:
            allowed.append(f"mcp__{MCP_SERVER_NAME}__*")
            argv += ["--mcp-config", json.dumps({"mcpServers": {MCP_SERVER_NAME: self._server(turn)}})]
            # The prompt names its tools: they must not be hidden behind a search.
            environment |= {"ENABLE_TOOL_SEARCH": "false", "MCP_TIMEOUT": START_MILLISECONDS, "MCP_CONNECT_TIMEOUT_MS": START_MILLISECONDS}
        if allowed:
            argv += ["--allowedTools", *allowed]
        return [*argv, *definition.options], {**environment, **turn.environment}

    def _server(self, turn: Turn) -> dict[str, Any]:
        command, *arguments = mcp_server_command()
        references = {name: f"${{{name}}}" for name in remit_variables(turn)}
        # `alwaysLoad`: the first request waits until this server is up; otherwise it may be sent without its tools.
        return {"type": "stdio", "command": command, "args": arguments, "env": references, "alwaysLoad": True}

    def read(self, line: Mapping[str, Any], to: "Listener") -> None:
        match line.get("type"):
            case "system":
                self._system(line, to)
            case "assistant":
                self._assistant(line, to)
            case "stream_event":
                self._partial(mapping_of(line.get("event")), text_of(line.get("parent_tool_use_id")), to)
            case "user":
                for block in items_of(mapping_of(line.get("message")).get("content")):
                    if block.get("type") == "tool_result":
                        status = "failed" if block.get("is_error") else "completed"
                        why = detail_of(_content(block.get("content"))) if status == "failed" else ""
                        to.tool("", "", status, call_id=text_of(block.get("tool_use_id")), why=why)
            case "result":
                self._result(line, to)

    def _system(self, line: Mapping[str, Any], to: "Listener") -> None:
        session = text_of(line.get("session_id"))
        if line.get("subtype") == "init" and session:
            to.started(session)
        if line.get("subtype") == "api_retry":
            status = status_of(line.get("error_status"))
            words = f"{text_of(line.get('error')) or 'error'} ({status or 'no answer'})"
            if status in _HOPELESS and count_of(line.get("attempt")) >= 2:
                to.failed(words, status, is_hopeless=True)
            else:
                to.note(f"The model's service answered {words}; retrying.")

    def _partial(self, event: Mapping[str, Any], parent: str, to: "Listener") -> None:
        """The usage of a message at its start and end. `parent`: for messages of a subagent, which are interleaved with its caller's."""
        if event.get("type") == "message_start":
            self._begun[parent] = mapping_of(event.get("message"))
            _claude_spent(self._begun[parent], to)
        elif event.get("type") == "message_delta" and parent in self._begun:
            begun, final = self._begun[parent], mapping_of(event.get("usage"))
            usage = {**mapping_of(begun.get("usage")), **{name: value for name, value in final.items() if value is not None}}
            _claude_spent({**begun, "usage": usage}, to)

    def _assistant(self, line: Mapping[str, Any], to: "Listener") -> None:
        message = mapping_of(line.get("message"))
        if message.get("model") == "<synthetic>":
            return  # its own text about an error, which is also in the result
        _claude_spent(message, to)
        is_own = line.get("parent_tool_use_id") is None
        for block in items_of(message.get("content")):
            tool, given = text_of(block.get("name")), block.get("input")
            if block.get("type") == "text" and is_own:
                to.said(text_of(block.get("text")))
            elif block.get("type") == "tool_use":
                to.tool(tool, detail_of(given), "pending", call_id=text_of(block.get("id")))

    def _result(self, line: Mapping[str, Any], to: "Listener") -> None:
        models = mapping_of(line.get("modelUsage"))
        tokens = sum(_sum_of(mapping_of(usage), _CLAUDE_MODEL_TOKENS) for usage in models.values())
        to.spent(Scope.RUN, tokens or _sum_of(mapping_of(line.get("usage")), _CLAUDE_TOKENS), cost=cost_of(line.get("total_cost_usd")))
        for denial in items_of(line.get("permission_denials")):
            tool, detail = text_of(denial.get("tool_name")), detail_of(denial.get("tool_input"))
            to.denied(tool, detail, call_id=text_of(denial.get("tool_use_id")))
        if session := text_of(line.get("session_id")):
            to.started(session)
        if line.get("stop_reason") == "refusal":
            to.failed(f"The model refused: {text_of(line.get('result'))}")
        elif line.get("terminal_reason") in _INTERRUPTED:
            to.interrupted()
        elif line.get("is_error"):
            to.failed(_fault(line), status_of(line.get("api_error_status")))
        else:
            to.ended(text_of(line.get("result")))


def _content(content: Any) -> str:
    return content if isinstance(content, str) else " ".join(text_of(part.get("text")) for part in items_of(content))


def _fault(line: Mapping[str, Any]) -> str:
    errors = line.get("errors")
    listed = "; ".join(str(one) for one in errors) if isinstance(errors, list) else ""
    kind = text_of(line.get("subtype"))
    return text_of(line.get("result")) or (f"{kind}: {listed}" if listed else kind)


_CLAUDE_TOKENS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
_CLAUDE_MODEL_TOKENS = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")


def _claude_spent(message: Mapping[str, Any], to: "Listener") -> None:
    """Anthropic counts input without its cache, the price table with it."""
    usage, key = mapping_of(message.get("usage")), text_of(message.get("id"))
    if not usage or not key:
        return
    used = _usage_of(usage, _CLAUDE_TOKENS[:3], _CLAUDE_TOKENS[3:], "cache_read_input_tokens", "cache_creation_input_tokens")
    to.spent(Scope.ITEM, used.tokens, key=key, model=f"anthropic:{text_of(message.get('model'))}", used=used)


def _sum_of(usage: Mapping[str, Any], names: Sequence[str]) -> int:
    return sum(count_of(usage.get(name)) for name in names)


def _usage_of(usage: Mapping[str, Any], inputs: Sequence[str], outputs: Sequence[str], cached: str, written: str) -> TokenUsage:
    """By the vendor's names. Cached and written tokens are part of the input."""
    return TokenUsage(
        input_tokens=_sum_of(usage, inputs),
        output_tokens=_sum_of(usage, outputs),
        cached_tokens=count_of(usage.get(cached)),
        written_tokens=count_of(usage.get(written)),
    )


# ---- Codex

TOOL_SECONDS = 1800
"""Remit's server answers with a handle long before; until then a call must not be cut."""
START_SECONDS = 60


class Codex(Dialect):
    vendor = "codex"
    variables = ("OPENAI_*", "CODEX_*", "AZURE_OPENAI_*", *NETWORK_VARIABLES)
    never_passed = ("CODEX_SANDBOX*", "CODEX_THREAD_ID", "CODEX_INTERNAL_*")

    def command_line(self, turn: Turn) -> CommandLine:
        definition = turn.definition
        argv = [*self._program(turn), "exec", "--json", "--skip-git-repo-check", "-C", str(turn.folder)]
        for name, value in self._settings(turn).items():  # strings, lists of them, numbers and booleans look the same in TOML
            argv += ["-c", f"{name}={json.dumps(value, ensure_ascii=False)}"]
        if definition.model:
            argv += ["-m", definition.model]
        argv += definition.options
        if turn.session is not None:
            argv += ["resume", turn.session]
        return [*argv, "-"], dict(turn.environment)

    def _settings(self, turn: Turn) -> dict[str, Any]:
        definition = turn.definition
        is_writer = may_change(definition.allow) and definition.spec.workspace is not WorkspaceKind.NONE
        settings: dict[str, Any] = {"approval_policy": "never", "sandbox_mode": "workspace-write" if is_writer else "read-only"}
        if turn.is_contained:  # which is a sandbox, inside which no other can be created
            settings["sandbox_mode"], is_writer = "danger-full-access", False
        if is_writer:
            settings["sandbox_workspace_write.writable_roots"] = [str(turn.scratch)]
        if is_writer and may_fetch(definition.allow):
            settings["sandbox_workspace_write.network_access"] = True
        if definition.delegates:
            command, *arguments = mcp_server_command()
            settings |= {
                f"mcp_servers.{MCP_SERVER_NAME}.{name}": value
                for name, value in {
                    "command": command,
                    "args": arguments,
                    "env_vars": remit_variables(turn),  # it passes only a few variables to its servers
                    "required": True,  # otherwise the first request may be sent before the server is up
                    "default_tools_approval_mode": "approve",
                    "startup_timeout_sec": START_SECONDS,
                    "tool_timeout_sec": TOOL_SECONDS,
                }.items()
            }
        return settings

    def rollouts(self, environment: Mapping[str, str]) -> Path | None:
        return Path(environment.get("CODEX_HOME") or Path(environment.get("HOME", "/")) / ".codex") / "sessions"

    def read(self, line: Mapping[str, Any], to: "Listener") -> None:
        match line.get("type"):
            case "thread.started":
                if session := text_of(line.get("thread_id")):
                    to.started(session)
            case "turn.completed":
                to.spent(Scope.SESSION, _sum_of(mapping_of(line.get("usage")), ("input_tokens", "output_tokens")))
                to.ended()
            case "turn.failed":
                to.failed(text_of(mapping_of(line.get("error")).get("message")))
            case "error":  # one attempt; `turn.failed` reports that it gave up
                to.note(f"Codex: {text_of(line.get('message'))}")
            case "item.started" | "item.updated" | "item.completed":
                self._item(mapping_of(line.get("item")), line.get("type") == "item.completed", to)

    def _item(self, item: Mapping[str, Any], is_over: bool, to: "Listener") -> None:
        match item.get("type"):
            case "agent_message":
                if is_over:
                    to.said(text_of(item.get("text")))
            case "todo_list":
                pass
            case "error":
                to.note(f"Codex: {text_of(item.get('message'))}")
            case "reasoning":
                if is_over:
                    to.note("It is thinking.")
            case str() as kind:
                status = "pending" if not is_over else "failed" if item.get("status") in ("failed", "declined") else "completed"
                tool, detail = kind, item.get("command") or item.get("query") or ""
                if kind == "mcp_tool_call":
                    tool, detail = f"{text_of(item.get('server'))}.{text_of(item.get('tool'))}", item.get("arguments")
                elif kind == "file_change":
                    tool, detail = "edit", ", ".join(text_of(change.get("path")) for change in items_of(item.get("changes")))
                elif kind == "command_execution":
                    tool = "execute"
                to.tool(tool, detail_of(detail), status, call_id=text_of(item.get("id")))


POLL_SECONDS, SEARCH_SECONDS = 0.02, 0.1
PIECE_BYTES = 1024 * 1024
"""Bytes per read of a rollout; a longer line is skipped."""


class Rollout:
    """The growing file of one Codex session, with the usage of each request: its stream reports usage only at the end of a turn.

    `is_resumed`: earlier runs counted its existing content."""

    def __init__(self, folder: Path, *, is_resumed: bool) -> None:
        self._folder = folder
        self._skips_first = is_resumed
        self._path: Path | None = None
        self._offset = 0
        self._rest = b""
        self._model = ""

    @property
    def is_found(self) -> bool:
        return self._path is not None

    def find(self, session: str) -> None:
        """Blocking: the folder may have many files."""
        path = next(self._folder.glob(f"*/*/*/rollout-*{session}.jsonl"), None)
        if path is not None and self._skips_first:
            self._offset = path.stat().st_size
        self._path = path

    def read(self, to: "Listener") -> None:
        """Report what was written since the last read."""
        if self._path is None:
            return
        try:
            if os.stat(self._path).st_size <= self._offset:
                return
            with os.fdopen(open_regular(self._path), "rb") as opened:
                opened.seek(self._offset)
                data = opened.read(PIECE_BYTES)
        except OSError:
            return
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > PIECE_BYTES:
            self._rest = b""
        for line in lines:
            if b"token_count" in line or b"turn_context" in line:
                self._report_line(line, to)

    def _report_line(self, line: bytes, to: "Listener") -> None:
        try:
            written = mapping_of(json.loads(line))
        except (ValueError, RecursionError):
            return
        payload = mapping_of(written.get("payload"))
        if written.get("type") == "turn_context":
            self._model = text_of(payload.get("model")) or self._model
        info = mapping_of(payload.get("info"))
        last = mapping_of(info.get("last_token_usage"))
        if payload.get("type") != "token_count" or not last:
            return
        used = _usage_of(last, ("input_tokens",), ("output_tokens",), "cached_input_tokens", "cache_write_input_tokens")
        total = count_of(mapping_of(info.get("total_token_usage")).get("total_tokens"))  # a repetition is the same request
        to.spent(Scope.ITEM, used.tokens, key=f"request up to {total}", model=self._model, used=used)


# ---- OpenCode

CONTENT = "OPENCODE_CONFIG_CONTENT"
TOOL_MILLISECONDS = 120_000
"""Remit's server answers within a minute, at least with a handle."""
CONTAINED_TOOL_MILLISECONDS = 3_600_000
"""In a container it answers when it is done: a later query is not possible there."""
_OPENCODE_HYGIENE = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}


class OpenCode(Dialect):
    vendor = "opencode"
    variables = ("OPENCODE_*", "OPENAI_*", "ANTHROPIC_*", *NETWORK_VARIABLES)
    never_passed = ("OPENCODE", "OPENCODE_PID", "OPENCODE_CALLER", "OPENCODE_SERVER_*", "OPENCODE_CLIENT", "OPENCODE_RUN_ID")
    hand_in_seconds = 8.0

    def command_line(self, turn: Turn) -> CommandLine:
        definition = turn.definition
        argv = [*self._program(turn), "run", "--format", "json"]
        # A given title avoids its request to a model for one.
        argv += ["--session", turn.session] if turn.session is not None else ["--title", f"remit {turn.delegation_id}"]
        if definition.model:
            argv += ["--model", definition.model]
        agent = _agent_named(definition.options)
        if not agent:
            agent = f"remit-{turn.delegation_id.replace('_', '-')}"  # a name that no file can contain beforehand
            argv += ["--agent", agent]
        permission = for_opencode(definition.allow, f"{turn.scratch}/**")
        # The permissions of the running agent override general ones.
        settings = {"mode": "primary", "permission": permission}
        config: dict[str, Any] = {"autoupdate": False, "share": "disabled", "agent": {agent: settings}, "permission": permission}
        if definition.delegates:
            permission[f"{MCP_SERVER_NAME}_*"] = "allow"
            server = {
                "type": "local",
                "command": mcp_server_command(),
                "environment": {name: f"{{env:{name}}}" for name in remit_variables(turn)},
                "enabled": True,
                "timeout": CONTAINED_TOOL_MILLISECONDS if turn.is_contained else TOOL_MILLISECONDS,
            }
            config["mcp"] = {MCP_SERVER_NAME: server}
        return [*argv, *definition.options], {**_OPENCODE_HYGIENE, **turn.environment, CONTENT: json.dumps(config)}

    def read(self, line: Mapping[str, Any], to: "Listener") -> None:
        if session := text_of(line.get("sessionID")):
            to.started(session)
        part = mapping_of(line.get("part"))
        match line.get("type"):
            case "text":
                to.said(text_of(part.get("text")))
            case "tool_use":
                _opencode_tool(part, to)
            case "step_finish":
                tokens = mapping_of(part.get("tokens"))
                counts = {**tokens, **mapping_of(tokens.get("cache"))}
                used = _usage_of(counts, ("input", "read", "write"), ("output", "reasoning"), "read", "write")
                total = count_of(tokens.get("total")) or used.tokens
                to.spent(Scope.ITEM, total, cost=cost_of(part.get("cost")), key=text_of(part.get("id")), used=used)
            case "error":
                error = mapping_of(line.get("error"))
                data = mapping_of(error.get("data"))
                words = text_of(data.get("message")) or text_of(error.get("name")) or "an error"
                to.failed(words, status_of(data.get("statusCode")))


def _opencode_tool(part: Mapping[str, Any], to: "Listener") -> None:
    tool, state = text_of(part.get("tool")), mapping_of(part.get("state"))
    given, call_id, error = mapping_of(state.get("input")), text_of(part.get("callID")), text_of(state.get("error"))
    if tool == "invalid":  # an unknown tool, which it reports for a denied one
        to.denied(text_of(given.get("tool")), detail_of(given.get("error")), call_id=call_id)
    elif "rejected permission" in error or "prevents you from using" in error:
        to.denied(tool, detail_of(given), call_id=call_id)
    else:
        status = "failed" if state.get("status") == "error" else text_of(state.get("status"))
        to.tool(tool, detail_of(given), status, call_id=call_id, why=detail_of(error))


def _agent_named(options: Sequence[str]) -> str:
    """The agent that the definition's own options select."""
    for index, option in enumerate(options):
        name, equals, value = option.partition("=")
        if name == "--agent":
            return value if equals else "".join(options[index + 1 : index + 2])
    return ""
