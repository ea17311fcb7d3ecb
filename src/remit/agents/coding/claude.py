"""Claude Code (`claude -p`): its command line and its stream of JSON lines. Pure; see `dialect`.

Usage is said with every message (its output only as far as it had come), and once more, whole, in `result`: that is the total of the
run, with what its own sub-agents and its small model used. A run that goes on in a session counts from nought again.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from remit.agents.coding.dialect import (
    NETWORK_VARIABLES,
    Began,
    Broke,
    CommandLine,
    Denied,
    Ended,
    Heard,
    Noted,
    Planned,
    Said,
    Scope,
    Spent,
    Trouble,
    Turn,
    Used,
    cost_of,
    count_of,
    detail_of,
    is_inside,
    items_of,
    mapping_of,
    program_of,
    status_of,
    text_of,
    told_names,
)
from remit.agents.coding.permits import for_claude
from remit.agents.own_tools import SERVER_NAME, server_command

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

    def read(self, line: Mapping[str, Any]) -> list[Heard]:
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

    def _system(self, line: Mapping[str, Any]) -> list[Heard]:
        session = text_of(line.get("session_id"))
        if line.get("subtype") == "init" and session:
            return [Began(session=session)]
        if line.get("subtype") == "api_retry":
            status = status_of(line.get("error_status"))
            words = f"{text_of(line.get('error')) or 'error'} ({status or 'no answer'})"
            if status in _HOPELESS and count_of(line.get("attempt")) >= 2:
                return [Trouble(message=words, status=status, is_hopeless=True)]
            return [Noted(message=f"The model's service answered {words}; it tries again.", is_trouble=True)]
        return []

    def _assistant(self, line: Mapping[str, Any]) -> list[Heard]:
        message = mapping_of(line.get("message"))
        if message.get("model") == "<synthetic>":
            return []  # its own words about an error, which stand in the result too
        usage, key = mapping_of(message.get("usage")), text_of(message.get("id"))
        heard: list[Heard] = [Spent(scope=Scope.ITEM, key=key, tokens=_tokens(usage))] if usage and key else []
        is_own = line.get("parent_tool_use_id") is None
        for block in items_of(message.get("content")):
            if block.get("type") == "text" and is_own:
                heard.append(Said(text=text_of(block.get("text"))))
            elif block.get("type") == "tool_use":
                heard.append(_used(block))
        return heard

    def _results(self, line: Mapping[str, Any]) -> list[Heard]:
        blocks = items_of(mapping_of(line.get("message")).get("content"))
        return [_result_of(block) for block in blocks if block.get("type") == "tool_result"]

    def _result(self, line: Mapping[str, Any]) -> list[Heard]:
        models = mapping_of(line.get("modelUsage"))
        tokens = sum(_model_tokens(mapping_of(usage)) for usage in models.values()) or _tokens(mapping_of(line.get("usage")))
        heard: list[Heard] = [Spent(scope=Scope.RUN, tokens=tokens, cost=cost_of(line.get("total_cost_usd")))]
        denials = items_of(line.get("permission_denials"))
        heard += [
            Denied(
                tool=text_of(denial.get("tool_name")),
                detail=detail_of(denial.get("tool_input")),
                call_id=text_of(denial.get("tool_use_id")),
            )
            for denial in denials
        ]
        if session := text_of(line.get("session_id")):
            heard.append(Began(session=session))
        if line.get("stop_reason") == "refusal":
            return [*heard, Trouble(message=f"The model refused: {text_of(line.get('result'))}")]
        if line.get("terminal_reason") in _INTERRUPTED:
            return [*heard, Broke()]
        if line.get("is_error"):
            return [*heard, Trouble(message=_fault(line), status=status_of(line.get("api_error_status")))]
        return [*heard, Ended(text=text_of(line.get("result")))]


def _used(block: Mapping[str, Any]) -> Heard:
    tool, given = text_of(block.get("name")), block.get("input")
    if tool == "TodoWrite":
        steps = items_of(mapping_of(given).get("todos"))
        return Planned(steps=tuple((text_of(step.get("content")), text_of(step.get("status"))) for step in steps))
    return Used(tool=tool, detail=detail_of(given), status="pending", call_id=text_of(block.get("id")))


def _result_of(block: Mapping[str, Any]) -> Heard:
    """Of its output only why it failed is worth a line."""
    call_id, words = text_of(block.get("tool_use_id")), _content(block.get("content"))
    if not block.get("is_error"):
        return Used(tool="", detail="", status="completed", call_id=call_id)
    if _DENIED.match(words):
        return Denied(tool="", detail="", call_id=call_id)
    return Used(tool="", detail="", status="failed", call_id=call_id, why=detail_of(words))


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
