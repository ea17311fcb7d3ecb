"""The vendors' command lines and event streams: Claude Code, Codex and OpenCode, each a `Dialect`.

A dialect builds the command line of a turn, with the allow-list in the vendor's words, and reads each line that the program prints.
Used by `coding.agent`; the settings of OpenCode also by `acp.connection`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from remit.agents.command import SERVER_NAME, server_command
from remit.agents.definition import Definition
from remit.core.agents import WorkspaceKind

# ---- dialects and their events

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
class SessionStarted:
    session: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMessage:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """A tool is used, or was: status pending, completed or failed. What was said of it before may be left out."""

    tool: str
    detail: str
    status: str
    call_id: str = ""
    why: str = ""
    """It failed: its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanUpdate:
    steps: tuple[tuple[str, str], ...]
    """Each step and its status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenUse:
    scope: Scope
    tokens: int
    cost: float = 0.0
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    tool: str
    detail: str
    call_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something worth a line, and nothing more."""

    message: str
    is_trouble: bool = False
    """Its service does not answer as it should, and it tries again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnd:
    """The turn is over and this is the answer; None: what was said last."""

    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """The turn was interrupted, and says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorError:
    """The vendor's error, in its own words."""

    message: str
    status: int | None = None
    is_hopeless: bool = False
    """The program goes on trying, in vain: it is not waited for."""


VendorEvent = SessionStarted | TextMessage | ToolUse | PlanUpdate | TokenUse | Denial | Note | TurnEnd | Interruption | VendorError


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
    def read(self, line: Mapping[str, Any]) -> list[VendorEvent]: ...


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


# ---- allow-lists

EVERYTHING = "*"
_CLAUDE = {
    "read": ("Read", "Glob", "Grep"),
    "search": ("Glob", "Grep"),
    "edit": ("Edit", "Write", "NotebookEdit"),
    "delete": (),
    "move": (),
    "execute": ("Bash",),
    "fetch": ("WebFetch", "WebSearch"),
    "think": (),
    "switch_mode": (),
    "other": (),
}
_OPENCODE = {
    "read": ("read", "list"),
    "search": ("glob", "grep", "list"),
    "edit": ("edit",),
    "delete": ("edit",),
    "move": ("edit",),
    "execute": ("bash",),
    "fetch": ("webfetch", "websearch"),
    "think": (),
    "switch_mode": (),
    "other": (),
    "write": ("edit",),
    "multiedit": ("edit",),
    "notebookedit": ("edit",),
    "patch": ("edit",),
    "bash": ("bash",),
    "glob": ("glob",),
    "grep": ("grep",),
    "webfetch": ("webfetch",),
    "websearch": ("websearch",),
    "task": ("task",),
    "agent": ("task",),
    "todowrite": ("todowrite",),
    "skill": ("skill",),
}
_FREE = ("read", "glob", "grep", "list", "todowrite", "todoread", "skill")
"""What opencode does without being asked: nothing of it changes anything."""
_CHANGING = frozenset({"edit", "delete", "move", "execute", "bash", "write", "multiedit", "notebookedit", "patch"})
_ENTRY = re.compile(r"(?P<name>[\w*.-]+)(?:\((?P<inner>.*)\)|:(?P<outer>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    name: str
    only: str | None
    """For some uses of it alone: a pattern."""
    is_kind: bool
    original: str


def entries(allow: Sequence[str]) -> list[Entry]:
    found = []
    for one in allow:
        match = _ENTRY.fullmatch(one.strip())
        name = match["name"] if match else one.strip()
        only = (match["inner"] if match["inner"] is not None else match["outer"]) if match else None
        found.append(Entry(name=name, only=only or None, is_kind=name in _CLAUDE, original=one.strip()))
    return found


def for_claude(allow: Sequence[str]) -> list[str]:
    """Rules for `--allowedTools`."""
    rules: list[str] = []
    for entry in entries(allow):
        if entry.original == EVERYTHING:
            rules += [name for names in _CLAUDE.values() for name in names]
        elif not entry.is_kind:
            rules.append(entry.original)
        elif entry.only is not None and entry.name == "execute":
            rules.append(f"Bash({entry.only})")
        elif entry.only is None:
            rules += _CLAUDE[entry.name]
    return list(dict.fromkeys(rules))


def for_opencode(allow: Sequence[str], scratch_pattern: str) -> dict[str, object]:
    """The table `permission` of its configuration: the last rule that fits decides."""
    table: dict[str, object] = {"*": "deny", **dict.fromkeys(_FREE, "allow")}
    table["external_directory"] = {"*": "deny", scratch_pattern: "allow"}
    for entry in entries(allow):
        for tool in _OPENCODE.get(entry.name.lower(), (entry.name,)):
            rules = table.get(tool)
            if entry.only is None:
                table[tool] = "allow"
            elif rules != "allow":
                table[tool] = {**(rules if isinstance(rules, dict) else {"*": "deny"}), entry.only.replace(":*", " *"): "allow"}
    return table


def may_change(allow: Sequence[str]) -> bool:
    """For a vendor that knows no list but a sandbox: whether it may write in its workspace. An empty list leaves it at that."""
    return not allow or any(entry.name.lower() in (EVERYTHING, *_CHANGING) for entry in entries(allow))


def may_fetch(allow: Sequence[str]) -> bool:
    return any(entry.name.lower() in (EVERYTHING, "fetch", "webfetch") for entry in entries(allow))


# ---- Claude Code

_HYGIENE = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
}
START_MILLISECONDS = "60000"
"""For our server to start, on a busy machine."""
_HOPELESS = (401, 403)
"""It tries ten times, for minutes, also where its key is wrong."""
_DENIED = re.compile(r"Permission to use .{1,200} (?:has been|was) denied|Claude requested permissions? to", re.DOTALL)
_INTERRUPTED = ("aborted_tools", "aborted_streaming")


class Claude:
    vendor = "claude"
    program = "claude"
    variables = ("ANTHROPIC_*", "CLAUDE_*", "DISABLE_*", "MCP_*", "ENABLE_TOOL_SEARCH", *NETWORK_VARIABLES)
    never_passed = (
        "CLAUDECODE",
        "CLAUDE_CODE_ENTRYPOINT",
        "CLAUDE_CODE_SESSION_*",
        "CLAUDE_CODE_SSE_PORT",
        "CLAUDE_CODE_CHILD_*",
        "CLAUDE_PROJECT_DIR",
    )
    hand_in_seconds = 5.0

    def command_line(self, turn: Turn) -> CommandLine:
        definition = turn.definition
        argv = [*program_of(turn, self.program), "-p", "--output-format", "stream-json", "--verbose"]
        # Whatever is not allowed is denied, not asked for; also where the user's own settings would let everything pass.
        argv += ["--permission-mode", "dontAsk"]
        if turn.session is not None:
            argv += ["--resume", turn.session]
        if definition.model:
            argv += ["--model", definition.model]
        if not is_inside(turn.scratch, turn.folder):
            argv += ["--add-dir", str(turn.scratch)]
        allowed = for_claude(definition.allow)
        environment = dict(_HYGIENE)
        if definition.delegates:
            allowed.append(f"mcp__{SERVER_NAME}__*")
            argv += ["--mcp-config", json.dumps({"mcpServers": {SERVER_NAME: self._server(turn)}})]
            # Its tools stand in the prompt by name: they must not be hidden behind a search.
            environment |= {"ENABLE_TOOL_SEARCH": "false", "MCP_TIMEOUT": START_MILLISECONDS, "MCP_CONNECT_TIMEOUT_MS": START_MILLISECONDS}
        if allowed:
            argv += ["--allowedTools", *allowed]
        return CommandLine(argv=(*argv, *definition.options), environment=environment)

    def _server(self, turn: Turn) -> dict[str, Any]:
        command, *arguments = server_command()
        references = {name: f"${{{name}}}" for name in told_names(turn)}
        # `alwaysLoad`: the first request waits until this server is up, else it may leave without its tools.
        return {"type": "stdio", "command": command, "args": arguments, "env": references, "alwaysLoad": True}

    def read(self, line: Mapping[str, Any]) -> list[VendorEvent]:
        match line.get("type"):
            case "system":
                return self._system(line)
            case "assistant":
                return self._assistant(line)
            case "user":
                return self._results(line)
            case "result":
                return self._result(line)
        return []

    def _system(self, line: Mapping[str, Any]) -> list[VendorEvent]:
        session = text_of(line.get("session_id"))
        if line.get("subtype") == "init" and session:
            return [SessionStarted(session=session)]
        if line.get("subtype") == "api_retry":
            status = status_of(line.get("error_status"))
            words = f"{text_of(line.get('error')) or 'error'} ({status or 'no answer'})"
            if status in _HOPELESS and count_of(line.get("attempt")) >= 2:
                return [VendorError(message=words, status=status, is_hopeless=True)]
            return [Note(message=f"The model's service answered {words}; it tries again.", is_trouble=True)]
        return []

    def _assistant(self, line: Mapping[str, Any]) -> list[VendorEvent]:
        message = mapping_of(line.get("message"))
        if message.get("model") == "<synthetic>":
            return []  # its own words about an error, which stand in the result too
        usage, key = mapping_of(message.get("usage")), text_of(message.get("id"))
        heard: list[VendorEvent] = [TokenUse(scope=Scope.ITEM, key=key, tokens=_tokens(usage))] if usage and key else []
        is_own = line.get("parent_tool_use_id") is None
        for block in items_of(message.get("content")):
            if block.get("type") == "text" and is_own:
                heard.append(TextMessage(text=text_of(block.get("text"))))
            elif block.get("type") == "tool_use":
                heard.append(_used(block))
        return heard

    def _results(self, line: Mapping[str, Any]) -> list[VendorEvent]:
        blocks = items_of(mapping_of(line.get("message")).get("content"))
        return [_result_of(block) for block in blocks if block.get("type") == "tool_result"]

    def _result(self, line: Mapping[str, Any]) -> list[VendorEvent]:
        models = mapping_of(line.get("modelUsage"))
        tokens = sum(_model_tokens(mapping_of(usage)) for usage in models.values()) or _tokens(mapping_of(line.get("usage")))
        heard: list[VendorEvent] = [TokenUse(scope=Scope.RUN, tokens=tokens, cost=cost_of(line.get("total_cost_usd")))]
        denials = items_of(line.get("permission_denials"))
        heard += [
            Denial(
                tool=text_of(denial.get("tool_name")),
                detail=detail_of(denial.get("tool_input")),
                call_id=text_of(denial.get("tool_use_id")),
            )
            for denial in denials
        ]
        if session := text_of(line.get("session_id")):
            heard.append(SessionStarted(session=session))
        if line.get("stop_reason") == "refusal":
            return [*heard, VendorError(message=f"The model refused: {text_of(line.get('result'))}")]
        if line.get("terminal_reason") in _INTERRUPTED:
            return [*heard, Interruption()]
        if line.get("is_error"):
            return [*heard, VendorError(message=_fault(line), status=status_of(line.get("api_error_status")))]
        return [*heard, TurnEnd(text=text_of(line.get("result")))]


def _used(block: Mapping[str, Any]) -> VendorEvent:
    tool, given = text_of(block.get("name")), block.get("input")
    if tool == "TodoWrite":
        steps = items_of(mapping_of(given).get("todos"))
        return PlanUpdate(steps=tuple((text_of(step.get("content")), text_of(step.get("status"))) for step in steps))
    return ToolUse(tool=tool, detail=detail_of(given), status="pending", call_id=text_of(block.get("id")))


def _result_of(block: Mapping[str, Any]) -> VendorEvent:
    """Of its output only why it failed is worth a line."""
    call_id, words = text_of(block.get("tool_use_id")), _content(block.get("content"))
    if not block.get("is_error"):
        return ToolUse(tool="", detail="", status="completed", call_id=call_id)
    if _DENIED.match(words):
        return Denial(tool="", detail="", call_id=call_id)
    return ToolUse(tool="", detail="", status="failed", call_id=call_id, why=detail_of(words))


def _content(content: Any) -> str:
    return content if isinstance(content, str) else " ".join(text_of(part.get("text")) for part in items_of(content))


def _fault(line: Mapping[str, Any]) -> str:
    errors = line.get("errors")
    listed = "; ".join(str(one) for one in errors) if isinstance(errors, list) else ""
    kind = text_of(line.get("subtype"))
    return text_of(line.get("result")) or (f"{kind}: {listed}" if listed else kind)


def _tokens(usage: Mapping[str, Any]) -> int:
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    return sum(count_of(usage.get(name)) for name in names)


def _model_tokens(usage: Mapping[str, Any]) -> int:
    return sum(count_of(usage.get(name)) for name in ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"))


# ---- Codex

TOOL_SECONDS = 1800
"""Our server answers with a handle long before; until then a call must not be cut."""
START_SECONDS = 60


class Codex:
    vendor = "codex"
    program = "codex"
    variables = ("OPENAI_*", "CODEX_*", "AZURE_OPENAI_*", *NETWORK_VARIABLES)
    never_passed = ("CODEX_SANDBOX*", "CODEX_THREAD_ID", "CODEX_INTERNAL_*")
    hand_in_seconds = 5.0

    def command_line(self, turn: Turn) -> CommandLine:
        definition = turn.definition
        argv = [*program_of(turn, self.program), "exec", "--json", "--skip-git-repo-check", "-C", str(turn.folder)]
        for name, value in self._settings(turn).items():
            argv += ["-c", f"{name}={_toml(value)}"]
        if definition.model:
            argv += ["-m", definition.model]
        argv += definition.options
        if turn.session is not None:
            argv += ["resume", turn.session]
        return CommandLine(argv=(*argv, "-"))

    def _settings(self, turn: Turn) -> dict[str, Any]:
        definition = turn.definition
        is_writer = may_change(definition.allow) and definition.spec.workspace is not WorkspaceKind.NONE
        settings: dict[str, Any] = {"approval_policy": "never", "sandbox_mode": "workspace-write" if is_writer else "read-only"}
        if is_writer:
            settings["sandbox_workspace_write.writable_roots"] = [str(turn.scratch)]
        if is_writer and may_fetch(definition.allow):
            settings["sandbox_workspace_write.network_access"] = True
        if definition.delegates:
            command, *arguments = server_command()
            settings |= {
                f"mcp_servers.{SERVER_NAME}.{name}": value
                for name, value in {
                    "command": command,
                    "args": arguments,
                    "env_vars": told_names(turn),  # it hands its servers few variables of its own accord
                    "required": True,  # else the first request may leave before the server is up
                    "default_tools_approval_mode": "approve",
                    "startup_timeout_sec": START_SECONDS,
                    "tool_timeout_sec": TOOL_SECONDS,
                }.items()
            }
        return settings

    def read(self, line: Mapping[str, Any]) -> list[VendorEvent]:
        match line.get("type"):
            case "thread.started":
                session = text_of(line.get("thread_id"))
                return [SessionStarted(session=session)] if session else []
            case "turn.completed":
                return [TokenUse(scope=Scope.SESSION, tokens=_codex_tokens(mapping_of(line.get("usage")))), TurnEnd()]
            case "turn.failed":
                return [VendorError(message=_message(mapping_of(line.get("error")).get("message")))]
            case "error":
                # Said of each attempt; when it gives up, `turn.failed` says so.
                return [Note(message=f"Codex: {_message(line.get('message'))}", is_trouble=True)]
            case "item.started" | "item.updated" | "item.completed":
                return self._item(mapping_of(line.get("item")), is_over=line.get("type") == "item.completed")
        return []

    def _item(self, item: Mapping[str, Any], *, is_over: bool) -> list[VendorEvent]:
        match item.get("type"):
            case "agent_message":
                return [TextMessage(text=text_of(item.get("text")))] if is_over else []
            case "todo_list":
                steps = items_of(item.get("items"))
                return [PlanUpdate(steps=tuple((text_of(s.get("text")), "completed" if s.get("completed") else "pending") for s in steps))]
            case "error":
                return [Note(message=f"Codex: {text_of(item.get('message'))}")]
            case "reasoning":
                return [Note(message="It is thinking.")] if is_over else []
            case str() as kind:
                return [_codex_used(kind, item, is_over=is_over)]
        return []


def _codex_used(kind: str, item: Mapping[str, Any], *, is_over: bool) -> VendorEvent:
    status = "pending" if not is_over else "failed" if item.get("status") in ("failed", "declined") else "completed"
    call_id = text_of(item.get("id"))
    if kind == "mcp_tool_call":
        tool = f"{text_of(item.get('server'))}.{text_of(item.get('tool'))}"
        return ToolUse(tool=tool, detail=detail_of(item.get("arguments")), status=status, call_id=call_id)
    if kind == "file_change":
        paths = ", ".join(text_of(change.get("path")) for change in items_of(item.get("changes")))
        return ToolUse(tool="edit", detail=detail_of(paths), status=status, call_id=call_id)
    told = item.get("command") or item.get("query") or ""
    return ToolUse(tool="execute" if kind == "command_execution" else kind, detail=detail_of(told), status=status, call_id=call_id)


def _message(message: Any) -> str:
    """Now and then the service's JSON, as text: the words in it are meant for people."""
    text = text_of(message)
    try:
        told = mapping_of(mapping_of(json.loads(text)).get("error")).get("message")
    except ValueError:
        return text
    return text_of(told) or text


def _codex_tokens(usage: Mapping[str, Any]) -> int:
    return count_of(usage.get("input_tokens")) + count_of(usage.get("output_tokens"))


def _toml(value: Any) -> str:
    """Strings, lists of them, numbers and truth look the same in JSON."""
    return json.dumps(value, ensure_ascii=False)


# ---- OpenCode

CONTENT = "OPENCODE_CONFIG_CONTENT"
TOOL_MILLISECONDS = 120_000
"""Our server answers within a minute, if only with a handle."""
HYGIENE = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}
NEVER_PASSED = ("OPENCODE", "OPENCODE_PID", "OPENCODE_CALLER", "OPENCODE_SERVER_*", "OPENCODE_CLIENT", "OPENCODE_RUN_ID")


class OpenCode:
    vendor = "opencode"
    program = "opencode"
    variables = ("OPENCODE_*", "OPENAI_*", "ANTHROPIC_*", *NETWORK_VARIABLES)
    never_passed = NEVER_PASSED
    hand_in_seconds = 8.0

    def command_line(self, turn: Turn) -> CommandLine:
        definition = turn.definition
        argv = [*program_of(turn, self.program), "run", "--format", "json"]
        # A title of ours spares it the request to a model for one.
        argv += ["--session", turn.session] if turn.session is not None else ["--title", f"remit {turn.delegation_id}"]
        if definition.model:
            argv += ["--model", definition.model]
        if not any(option.startswith(("--print-logs", "--log-level")) for option in definition.options):
            argv += ["--print-logs", "--log-level", "ERROR"]  # it says nowhere else that its service refuses it and it tries again
        config = {**_given(turn), **self._config(turn)}
        if not (named := _agent_named(definition.options)):
            argv += ["--agent", _own_agent(turn)]
        permission = config["permission"]
        # What an agent of the project's own settings may do goes before what all may: so it is said of the agent that runs, too.
        config["agent"] = {**mapping_of(config.get("agent")), named or _own_agent(turn): {"mode": "primary", "permission": permission}}
        return CommandLine(argv=(*argv, *definition.options), environment=HYGIENE, imposed={CONTENT: json.dumps(config)})

    def _config(self, turn: Turn) -> dict[str, Any]:
        definition, given = turn.definition, _given(turn)
        permission = for_opencode(definition.allow, f"{turn.scratch}/**")
        config: dict[str, Any] = {"permission": permission, "autoupdate": False, "share": "disabled"}
        if definition.delegates:
            permission[f"{SERVER_NAME}_*"] = "allow"
            config["mcp"] = {
                **mapping_of(given.get("mcp")),
                SERVER_NAME: {
                    "type": "local",
                    "command": server_command(),
                    "environment": {name: f"{{env:{name}}}" for name in told_names(turn)},
                    "enabled": True,
                    "timeout": TOOL_MILLISECONDS,
                },
            }
        return config

    def read(self, line: Mapping[str, Any]) -> list[VendorEvent]:
        session = text_of(line.get("sessionID"))
        heard: list[VendorEvent] = [SessionStarted(session=session)] if session else []
        part = mapping_of(line.get("part"))
        match line.get("type"):
            case "text":
                heard.append(TextMessage(text=text_of(part.get("text"))))
            case "tool_use":
                heard += _opencode_used(part)
            case "step_finish":
                tokens = _opencode_tokens(mapping_of(part.get("tokens")))
                heard.append(TokenUse(scope=Scope.ITEM, key=text_of(part.get("id")), tokens=tokens, cost=cost_of(part.get("cost"))))
            case "error":
                heard.append(_trouble(mapping_of(line.get("error"))))
        return heard


def _own_agent(turn: Turn) -> str:
    """A name that no file can have known beforehand."""
    return f"remit-{turn.delegation_id.replace('_', '-')}"


def _agent_named(options: Sequence[str]) -> str:
    """Which of its agents the definition's own options choose."""
    for index, option in enumerate(options):
        name, equals, value = option.partition("=")
        if name == "--agent":
            return value if equals else "".join(options[index + 1 : index + 2])
    return ""


def _given(turn: Turn) -> dict[str, Any]:
    """What the user had put there is kept, but for what is ours to say."""
    try:
        given = json.loads(turn.environment.get(CONTENT, "{}"))
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def _opencode_used(part: Mapping[str, Any]) -> list[VendorEvent]:
    tool, state = text_of(part.get("tool")), mapping_of(part.get("state"))
    given, call_id = mapping_of(state.get("input")), text_of(part.get("callID"))
    if tool == "todowrite" and state.get("status") == "completed":
        return [PlanUpdate(steps=tuple((text_of(s.get("content")), text_of(s.get("status"))) for s in items_of(given.get("todos"))))]
    if tool == "invalid":
        # Its word for a tool that is not there, which is what it makes of one that was denied.
        return [Denial(tool=text_of(given.get("tool")), detail=detail_of(given.get("error")), call_id=call_id)]
    error = text_of(state.get("error"))
    if "rejected permission" in error or "prevents you from using" in error:
        return [Denial(tool=tool, detail=detail_of(given), call_id=call_id)]
    status = "failed" if state.get("status") == "error" else text_of(state.get("status"))
    return [ToolUse(tool=tool, detail=detail_of(given), status=status, call_id=call_id, why=detail_of(error))]


def _trouble(error: Mapping[str, Any]) -> VendorError:
    data = mapping_of(error.get("data"))
    return VendorError(
        message=text_of(data.get("message")) or text_of(error.get("name")) or "an error", status=status_of(data.get("statusCode"))
    )


def _opencode_tokens(tokens: Mapping[str, Any]) -> int:
    if total := count_of(tokens.get("total")):
        return total
    cache = mapping_of(tokens.get("cache"))
    numbers = [tokens.get("input"), tokens.get("output"), tokens.get("reasoning"), cache.get("read"), cache.get("write")]
    return sum(count_of(number) for number in numbers)
