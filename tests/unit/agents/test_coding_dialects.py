"""Claude, codex and opencode: command lines, output, and errors."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from remit.agents.coding.coding_agent import is_session_gone
from remit.agents.coding.dialects import CONTENT, Claude, Codex, Dialect, OpenCode, Turn, for_claude, for_opencode, may_change, may_fetch
from remit.agents.definition import definition_of
from remit.models.prices import TokenUsage
from remit.system.interpreter import mcp_server_command

USED_BY_OPENCODE = TokenUsage(input_tokens=300, output_tokens=9, cached_tokens=100)
USED_BY_CLAUDE = TokenUsage(input_tokens=123, output_tokens=1, cached_tokens=20, written_tokens=3)
VENDORS: Sequence[Dialect] = (Claude(), Codex(), OpenCode())
ENVIRONMENT = {"REMIT_CALLER": "a-secret", "REMIT_ROOT": "/p", "PATH": "/bin"}


def turn(vendor: str, *, session: str | None = None, environment: dict[str, str] | None = None, **table: Any) -> Turn:
    definition = definition_of("agent", {"kind": vendor, **table}, source="test")
    return Turn(
        definition=definition,
        environment=environment or ENVIRONMENT,
        folder=Path("/p"),
        scratch=Path("/p/.remit/scratch/s"),
        delegation_id="sess_1_abcdef",
        session=session,
    )


def argv(dialect: Dialect, **asked: Any) -> list[str]:
    return dialect.command_line(turn(dialect.vendor, **asked))[0]


def after(words: Sequence[str], option: str) -> list[str]:
    return [words[index + 1] for index, word in enumerate(words) if word == option]


def test_codex_never_asks_and_stays_in_its_workspace() -> None:
    settings = after(argv(Codex()), "-c")
    assert 'approval_policy="never"' in settings
    assert 'sandbox_mode="workspace-write"' in settings
    assert 'sandbox_mode="read-only"' in after(argv(Codex(), allow=["read"]), "-c")
    assert 'sandbox_mode="read-only"' in after(argv(Codex(), workspace="none"), "-c")
    assert "sandbox_workspace_write.network_access=true" in after(argv(Codex(), allow=["edit", "fetch"]), "-c")


@pytest.mark.parametrize("dialect", VENDORS, ids=lambda one: one.vendor)
def test_delegating_agent_gets_our_server_and_the_token_by_name_only(dialect: Dialect) -> None:
    """The token is in no argument and in no file."""
    words, environment = dialect.command_line(turn(dialect.vendor, delegates=True))
    passed = json.dumps([words, {name: value for name, value in environment.items() if name not in ENVIRONMENT}])
    assert json.dumps(mcp_server_command()[0]).strip('"') in passed
    assert "REMIT_CALLER" in passed
    assert "a-secret" not in passed
    assert mcp_server_command()[0] not in json.dumps(dialect.command_line(turn(dialect.vendor)))


def test_no_agent_of_opencode_settings_overrides_the_allow_list() -> None:
    """Settings of one agent override those of all agents, so the running agent has a name that no file can know."""

    def asked(**table: Any) -> tuple[list[str], Any]:
        words, environment = OpenCode().command_line(turn("opencode", allow=["read"], **table))
        return after(words, "--agent"), json.loads(environment[CONTENT])

    (name,), config = asked()
    assert name == "remit-sess-1-abcdef"
    assert config["agent"][name] == {"mode": "primary", "permission": config["permission"]}
    names, config = asked(options=["--agent", "plan"])
    assert names == ["plan"], "the choice of the definition is kept"
    assert config["agent"]["plan"]["permission"] == config["permission"]
    assert asked(options=["--agent=plan"])[1]["agent"].keys() == {"plan"}


def test_one_allow_list_works_for_every_vendor() -> None:
    allow = ["read", "execute:git *", "Edit", "mcp__docs__*"]
    assert for_claude(allow) == ["Read", "Glob", "Grep", "Bash(git *)", "Edit", "mcp__docs__*"]
    permission = for_opencode(allow, "/s/**")
    assert permission["*"] == "deny"
    assert permission["bash"] == {"*": "deny", "git *": "allow"}
    assert permission["edit"] == "allow"
    assert "webfetch" not in permission
    assert list(permission).index("*") < list(permission).index("read"), "the last matching rule decides"
    assert may_change(allow)
    assert not may_change(["read", "search"])
    assert not may_fetch(allow)
    assert for_opencode(["Bash(npm test:*)"], "/s/**")["bash"] == {"*": "deny", "npm test *": "allow"}
    assert "Bash" in for_claude(["*"])
    assert for_opencode(["*"], "/s/**")["*"] == "allow"


class Recorder:
    """A listener that records its calls."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def __getattr__(self, event: str) -> Any:
        return lambda *given, **more: self.heard.append((event, *given, *((name, value) for name, value in more.items() if value)))


CLAUDE_USAGE = {"input_tokens": 100, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 3, "output_tokens": 1}
CLAUDE_SPENT = ("spent", "item", 124, ("key", "m1"), ("model", "anthropic:"), ("used", USED_BY_CLAUDE))
CLAUDE_END = {
    "type": "result", "subtype": "success", "is_error": False, "result": "All done.", "session_id": "u", "total_cost_usd": 0.5,
    "usage": {"input_tokens": 1}, "terminal_reason": "completed",
    "modelUsage": {"m": {"inputTokens": 400, "outputTokens": 200, "cacheReadInputTokens": 80, "cacheCreationInputTokens": 12}},
    "permission_denials": [{"tool_name": "Edit", "tool_input": {"file_path": "/p/a"}}],
}  # fmt: skip
REFUSED = "The user rejected permission to use this specific tool call."
RETRY = {"type": "system", "subtype": "api_retry", "attempt": 2, "error_status": 401, "error": "authentication_failed"}


def claude(*content: Any, **message: Any) -> dict[str, Any]:
    return {"type": "assistant", "message": {"id": "m1", "content": list(content), **message}, "parent_tool_use_id": None}


def codex(kind: str, **item: Any) -> dict[str, Any]:
    return {"type": f"item.{kind}", "item": {"id": "i1", **item}}


def opencode(kind: str, **part: Any) -> dict[str, Any]:
    return {"type": kind, "sessionID": "s", "part": part}


LINES: list[tuple[Dialect, Any, list[Any]]] = [
    (Claude(), claude({"type": "text", "text": "Hello."}, usage=CLAUDE_USAGE), [CLAUDE_SPENT, ("said", "Hello.")]),
    (
        Claude(),
        {"type": "stream_event", "event": {"type": "message_start", "message": {"id": "m1", "usage": CLAUDE_USAGE}}},
        [CLAUDE_SPENT],
    ),
    (Claude(), {**claude({"type": "text", "text": "Inner."}), "parent_tool_use_id": "t1"}, []),
    (Claude(), CLAUDE_END, [("spent", "run", 692, ("cost", 0.5)), ("denied", "Edit", "/p/a"), ("started", "u"), ("ended", "All done.")]),
    (Claude(), {"type": "result", "is_error": True, "terminal_reason": "aborted_tools"}, [("spent", "run", 0), ("interrupted",)]),
    (Claude(), RETRY, [("failed", "authentication_failed (401)", 401, ("is_hopeless", True))]),
    (
        Codex(),
        codex("completed", type="mcp_tool_call", server="remit", tool="delegate", arguments={"agent": "x"}, status="completed"),
        [("tool", "remit.delegate", "x", "completed", ("call_id", "i1"))],
    ),
    (
        Codex(),
        {"type": "turn.completed", "usage": {"input_tokens": 400, "cached_input_tokens": 80, "output_tokens": 200}},
        [("spent", "session", 600), ("ended",)],
    ),
    (Codex(), {"type": "turn.failed", "error": {"message": "Too big."}}, [("failed", "Too big.")]),
    (
        OpenCode(),
        opencode("tool_use", tool="bash", state={"status": "error", "input": {"command": "rm"}, "error": REFUSED}),
        [("started", "s"), ("denied", "bash", "rm")],
    ),
    (
        OpenCode(),
        opencode("step_finish", id="p1", tokens={"input": 200, "output": 9, "cache": {"write": 0, "read": 100}}, cost=0.25),
        [("started", "s"), ("spent", "item", 309, ("cost", 0.25), ("key", "p1"), ("used", USED_BY_OPENCODE))],
    ),
    (
        OpenCode(),
        {"type": "error", "error": {"name": "APIError", "data": {"message": "invalid x-api-key", "statusCode": 401}}},
        [("failed", "invalid x-api-key", 401)],
    ),
]
"""What the runs of the real programs in `tests/real` do not show."""


@pytest.mark.parametrize(("dialect", "line", "heard"), LINES)
def test_lines_of_each_vendor_are_parsed(dialect: Dialect, line: Any, heard: list[Any]) -> None:
    recorder: Any = Recorder()
    dialect.read(line, recorder)
    assert recorder.heard == heard


def test_lost_session_is_recognized_for_each_vendor() -> None:
    assert is_session_gone("No conversation found with session ID: 3b44")
    assert is_session_gone("Error: thread/resume failed: no rollout found for thread id 01a1 (code -32600)")
    assert is_session_gone("Error: Session not found")
    assert not is_session_gone("File not found")
