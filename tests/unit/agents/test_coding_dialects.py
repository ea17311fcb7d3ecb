"""Claude, codex and opencode: how they are started, what is read of the lines they print, and their errors."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from remit.agents.coding.coding_agent import error_for, is_session_gone
from remit.agents.coding.dialects import (
    CONTENT,
    Claude,
    Codex,
    Denial,
    Dialect,
    Interruption,
    Note,
    OpenCode,
    PlanUpdate,
    Scope,
    SessionStarted,
    TextMessage,
    TokenUse,
    ToolUse,
    Turn,
    TurnEnd,
    VendorError,
    for_claude,
    for_opencode,
    may_change,
    may_fetch,
)
from remit.agents.command import server_command
from remit.agents.definition import definition_of
from remit.core.errors import Failed, Unavailable

VENDORS: Sequence[Dialect] = (Claude(), Codex(), OpenCode())
TOLD = {"REMIT_CALLER": "a-secret", "REMIT_ROOT": "/p", "PATH": "/bin"}


def turn(vendor: str, *, session: str | None = None, environment: dict[str, str] | None = None, **table: Any) -> Turn:
    definition = definition_of("agent", {"kind": vendor, **table}, source="test")
    return Turn(
        definition=definition,
        environment=environment or TOLD,
        folder=Path("/p"),
        scratch=Path("/p/.remit/scratch/s"),
        delegation_id="sess_1_abcdef",
        session=session,
    )


def argv(dialect: Dialect, **asked: Any) -> list[str]:
    return list(dialect.command_line(turn(dialect.vendor, **asked)).argv)


def after(words: Sequence[str], option: str) -> list[str]:
    return [words[index + 1] for index, word in enumerate(words) if word == option]


# ---- what is asked


def test_each_is_started_headless_with_a_stream_and_its_prompt_on_standard_input() -> None:
    assert argv(Claude())[:5] == ["claude", "-p", "--output-format", "stream-json", "--verbose"]
    assert argv(Codex())[:6] == ["codex", "exec", "--json", "--skip-git-repo-check", "-C", "/p"]
    assert argv(Codex())[-1] == "-"
    assert argv(OpenCode())[:4] == ["opencode", "run", "--format", "json"]


@pytest.mark.parametrize("dialect", VENDORS, ids=lambda one: one.vendor)
def test_command_model_and_options_are_the_definitions(dialect: Dialect) -> None:
    words = argv(dialect, command=["npx", "-y", "it"], model="some/model", options=["--more", "1"])
    assert words[:3] == ["npx", "-y", "it"]
    assert "some/model" in words
    assert words[words.index("--more") + 1] == "1"
    everything = " ".join(argv(dialect, allow=["*"], delegates=True))
    assert not any(word in everything for word in ("dangerously", "bypass", "--auto")), "no permission is ever skipped"


def test_a_session_is_gone_on_in() -> None:
    assert after(argv(Claude(), session="abc"), "--resume") == ["abc"]
    assert argv(Codex(), session="abc", options=["--more"])[-4:] == ["--more", "resume", "abc", "-"]
    assert after(argv(OpenCode(), session="abc"), "--session") == ["abc"]


def test_codex_asks_nobody_and_stays_in_its_workspace() -> None:
    settings = after(argv(Codex()), "-c")
    assert 'approval_policy="never"' in settings
    assert 'sandbox_mode="workspace-write"' in settings
    assert 'sandbox_mode="read-only"' in after(argv(Codex(), allow=["read"]), "-c")
    assert 'sandbox_mode="read-only"' in after(argv(Codex(), workspace="none"), "-c")
    assert "sandbox_workspace_write.network_access=true" in after(argv(Codex(), allow=["edit", "fetch"]), "-c")


@pytest.mark.parametrize("dialect", VENDORS, ids=lambda one: one.vendor)
def test_one_that_delegates_is_given_our_server_and_the_token_only_by_name(dialect: Dialect) -> None:
    """The token stands in no argument and in no file."""
    line = dialect.command_line(turn(dialect.vendor, delegates=True))
    told = json.dumps([line.argv, dict(line.environment), dict(line.imposed)])
    assert json.dumps(server_command()[0]).strip('"') in told
    assert "REMIT_CALLER" in told
    assert "a-secret" not in told
    without = dialect.command_line(turn(dialect.vendor))
    assert server_command()[0] not in json.dumps([without.argv, dict(without.imposed)])


def test_the_users_own_settings_for_opencode_are_kept_but_for_permissions() -> None:
    own = {"mcp": {"mine": {"type": "local", "command": ["x"]}}, "model": "a/b", "permission": {"*": "allow"}}
    line = OpenCode().command_line(turn("opencode", delegates=True, environment={**TOLD, CONTENT: json.dumps(own)}))
    config = json.loads(line.imposed[CONTENT])
    assert config["model"] == "a/b"
    assert set(config["mcp"]) == {"mine", "remit"}
    assert config["permission"]["*"] == "deny"
    assert config["permission"]["remit_*"] == "allow"


def test_no_agent_of_a_projects_settings_for_opencode_goes_before_the_allow_list() -> None:
    """What is said of one of its agents decides over what is said of all: so the agent that runs is one that no file can know."""

    def asked(**table: Any) -> tuple[list[str], Any]:
        line = OpenCode().command_line(turn("opencode", allow=["read"], **table))
        return after(line.argv, "--agent"), json.loads(line.imposed[CONTENT])

    (name,), config = asked()
    assert name == "remit-sess-1-abcdef"
    assert config["agent"][name] == {"mode": "primary", "permission": config["permission"]}
    names, config = asked(options=["--agent", "plan"])
    assert names == ["plan"], "the definition's own choice stays"
    assert config["agent"]["plan"]["permission"] == config["permission"]
    assert asked(options=["--agent=plan"])[1]["agent"].keys() == {"plan"}


def test_one_allow_list_serves_every_vendor() -> None:
    allow = ["read", "execute:git *", "Edit", "mcp__docs__*"]
    assert for_claude(allow) == ["Read", "Glob", "Grep", "Bash(git *)", "Edit", "mcp__docs__*"]
    permission = for_opencode(allow, "/s/**")
    assert permission["*"] == "deny"
    assert permission["bash"] == {"*": "deny", "git *": "allow"}
    assert permission["edit"] == "allow"
    assert "webfetch" not in permission
    assert list(permission).index("*") < list(permission).index("read"), "the last rule that fits decides"
    assert may_change(allow)
    assert not may_change(["read", "search"])
    assert not may_fetch(allow)
    assert for_opencode(["Bash(npm test:*)"], "/s/**")["bash"] == {"*": "deny", "npm test *": "allow"}
    assert "Bash" in for_claude(["*"])
    assert for_opencode(["*"], "/s/**")["*"] == "allow"


# ---- what is heard


def test_claude_is_understood() -> None:
    claude = Claude()
    assert claude.read({"type": "system", "subtype": "init", "session_id": "u"}) == [SessionStarted(session="u")]
    usage = {"input_tokens": 100, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 3, "output_tokens": 1}
    message = {"id": "msg_1", "model": "m", "usage": usage, "content": [{"type": "text", "text": "Hello."}]}
    assert claude.read({"type": "assistant", "message": message, "parent_tool_use_id": None}) == [
        TokenUse(scope=Scope.ITEM, key="msg_1", tokens=124),
        TextMessage(text="Hello."),
    ]
    call = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "echo hi", "description": "say"}}
    said = claude.read({"type": "assistant", "message": {**message, "content": [call]}, "parent_tool_use_id": None})
    assert said[1] == ToolUse(tool="Bash", detail="echo hi", status="pending", call_id="t1")
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True}
    failed = ToolUse(tool="", detail="", status="failed", call_id="t1", why="no")
    assert claude.read({"type": "user", "message": {"content": [result]}}) == [failed]
    refused = {**result, "content": "Permission to use Bash with command rm has been denied."}
    assert claude.read({"type": "user", "message": {"content": [refused]}}) == [Denial(tool="", detail="", call_id="t1")]
    inner = {"id": "msg_2", "content": [{"type": "text", "text": "Inner."}]}
    assert claude.read({"type": "assistant", "message": inner, "parent_tool_use_id": "t1"}) == [], "a sub-agent's words are not its answer"
    todo = {"type": "tool_use", "id": "t2", "name": "TodoWrite", "input": {"todos": [{"content": "x", "status": "pending"}]}}
    assert claude.read({"type": "assistant", "message": {"content": [todo]}}) == [PlanUpdate(steps=(("x", "pending"),))]


def test_claudes_end_says_the_answer_what_was_spent_and_what_was_denied() -> None:
    heard = Claude().read(
        {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "result": "All done.",
            "session_id": "u",
            "total_cost_usd": 0.5,
            "usage": {"input_tokens": 1},
            "modelUsage": {"m": {"inputTokens": 400, "outputTokens": 200, "cacheReadInputTokens": 80, "cacheCreationInputTokens": 12}},
            "permission_denials": [{"tool_name": "Edit", "tool_input": {"file_path": "/p/a"}}],
            "terminal_reason": "completed",
        }
    )
    assert heard == [
        TokenUse(scope=Scope.RUN, tokens=692, cost=0.5),
        Denial(tool="Edit", detail="/p/a"),
        SessionStarted(session="u"),
        TurnEnd(text="All done."),
    ]


RETRY = {"type": "system", "subtype": "api_retry", "attempt": 1, "error_status": 401, "error": "authentication_failed"}
LOST = "No conversation found with session ID: x"


@pytest.mark.parametrize(
    ("dialect", "line", "event"),
    [
        (
            Claude(),
            {"type": "result", "subtype": "success", "is_error": True, "api_error_status": 401, "result": "Invalid API key"},
            VendorError(message="Invalid API key", status=401),
        ),
        (
            Claude(),
            {"type": "result", "subtype": "error_during_execution", "is_error": True, "terminal_reason": "aborted_tools"},
            Interruption(),
        ),
        (Claude(), {"type": "result", "subtype": "error_during_execution", "is_error": True, "errors": [LOST]}, VendorError),
        (Claude(), RETRY, Note),
        (Claude(), {**RETRY, "attempt": 2}, VendorError(message="authentication_failed (401)", status=401, is_hopeless=True)),
        (Claude(), {**RETRY, "attempt": 9, "error_status": 429}, Note),
        (Codex(), {"type": "item.completed", "item": {"type": "error", "message": "Model metadata not found."}}, Note),
        (Codex(), {"type": "error", "message": "Reconnecting... 1/5"}, Note),
        (Codex(), {"type": "turn.failed", "error": {"message": '{"error": {"message": "Too big."}}'}}, VendorError(message="Too big.")),
    ],
)
def test_errors_warnings_interruptions_and_hopeless_retries_are_told_apart(dialect: Dialect, line: Any, event: Any) -> None:
    heard = dialect.read(line)[-1]
    assert isinstance(heard, event) if isinstance(event, type) else heard == event


def test_codex_is_understood() -> None:
    codex = Codex()
    assert codex.read({"type": "thread.started", "thread_id": "u"}) == [SessionStarted(session="u")]
    item = {"id": "item_1", "type": "command_execution", "command": "ls", "status": "in_progress"}
    assert codex.read({"type": "item.started", "item": item}) == [ToolUse(tool="execute", detail="ls", status="pending", call_id="item_1")]
    failed = {**item, "status": "failed"}
    assert codex.read({"type": "item.completed", "item": failed}) == [
        ToolUse(tool="execute", detail="ls", status="failed", call_id="item_1")
    ]
    call = {
        "id": "item_2",
        "type": "mcp_tool_call",
        "server": "remit",
        "tool": "delegate",
        "arguments": {"agent": "x"},
        "status": "completed",
    }
    assert codex.read({"type": "item.completed", "item": call}) == [
        ToolUse(tool="remit.delegate", detail="x", status="completed", call_id="item_2")
    ]
    assert codex.read({"type": "item.completed", "item": {"type": "agent_message", "text": "Done."}}) == [TextMessage(text="Done.")]
    usage = {"input_tokens": 400, "cached_input_tokens": 80, "output_tokens": 200}
    assert codex.read({"type": "turn.completed", "usage": usage}) == [TokenUse(scope=Scope.SESSION, tokens=600), TurnEnd()]
    todo = {"type": "todo_list", "items": [{"text": "a", "completed": True}, {"text": "b", "completed": False}]}
    assert codex.read({"type": "item.updated", "item": todo}) == [PlanUpdate(steps=(("a", "completed"), ("b", "pending")))]


def test_opencode_is_understood() -> None:
    opencode = OpenCode()

    def read(kind: str, **more: Any) -> list[Any]:
        began, *heard = opencode.read({"type": kind, "sessionID": "ses_1", **more})
        assert began == SessionStarted(session="ses_1")
        return heard

    assert read("step_start", part={}) == []
    assert read("text", part={"text": "Done."}) == [TextMessage(text="Done.")]
    state = {"status": "completed", "input": {"command": "ls"}, "output": "a"}
    assert read("tool_use", part={"tool": "bash", "callID": "c", "state": state}) == [
        ToolUse(tool="bash", detail="ls", status="completed", call_id="c")
    ]
    refused = {"status": "error", "input": {"command": "rm"}, "error": "The user rejected permission to use this specific tool call."}
    assert read("tool_use", part={"tool": "bash", "state": refused}) == [Denial(tool="bash", detail="rm")]
    hidden = {"status": "completed", "input": {"tool": "bash", "error": "unavailable tool"}}
    assert read("tool_use", part={"tool": "invalid", "state": hidden}) == [Denial(tool="bash", detail="unavailable tool")]
    tokens = {"total": 309, "input": 200, "output": 9, "reasoning": 0, "cache": {"write": 0, "read": 100}}
    assert read("step_finish", part={"id": "p1", "tokens": tokens, "cost": 0.25}) == [
        TokenUse(scope=Scope.ITEM, key="p1", tokens=309, cost=0.25)
    ]
    error = {"name": "APIError", "data": {"message": "invalid x-api-key", "statusCode": 401}}
    assert read("error", error=error) == [VendorError(message="invalid x-api-key", status=401)]


@pytest.mark.parametrize("dialect", VENDORS, ids=lambda one: one.vendor)
@pytest.mark.parametrize(
    "kind", ["assistant", "user", "result", "item.completed", "turn.completed", "turn.failed", "text", "tool_use", "error", "x"]
)
@pytest.mark.parametrize("value", [None, 7, "word", [], [1], {}, {"content": 3, "item": [], "usage": "much", "tokens": [1], "state": 1}])
def test_lines_of_any_shape_are_borne(dialect: Dialect, kind: str, value: Any) -> None:
    names = ("message", "item", "part", "error", "usage", "modelUsage", "permission_denials", "errors", "result", "total_cost_usd")
    dialect.read({"type": kind, **dict.fromkeys(names, value)})


# ---- errors


@pytest.mark.parametrize(
    ("message", "status", "kind", "word"),
    [
        ("Not logged in · Please run /login", None, Unavailable, "/login"),
        ("authentication_failed (401)", 401, Unavailable, "not logged in"),
        ("unexpected status 401 Unauthorized: bad, url: http://127.0.0.1:1/v1", None, Unavailable, "not logged in"),
        ("API Error: Repeated 529 Overloaded errors.", None, Unavailable, "overloaded"),
        ("exceeded retry limit, last status: 429 Too Many Requests", None, Unavailable, "limit"),
        ("We're currently experiencing high demand, which may cause temporary errors.", None, Unavailable, "limit"),
        ("API Error: 500 scripted trouble", None, Unavailable, "has an error"),
        ("Cannot connect to API: Unable to connect.", None, Unavailable, "could not reach"),
        ("Unable to connect to API (ConnectionRefused)", None, Unavailable, "could not reach"),
        ("connect ECONNREFUSED 127.0.0.1:9", None, Unavailable, "could not reach"),
        ("Connection refused (os error 111)", None, Unavailable, "could not reach"),
        ("stream disconnected before completion: failed to lookup address information", None, Unavailable, "could not reach"),
        ("Prompt is too long", 400, Failed, "context"),
        ("error_max_turns: Reached maximum number of turns (3)", None, Failed, "turns"),
        ("The model refused: no.", None, Failed, "refused"),
        ("scripted trouble", 400, Failed, "scripted trouble"),
        ("", None, Failed, "no word why"),
    ],
)
def test_a_vendors_error_is_named_in_our_words(message: str, status: int | None, kind: type[Exception], word: str) -> None:
    error = error_for("claude", message, status)
    assert type(error) is kind
    assert word in str(error)
    assert error.advice


def test_a_session_that_is_gone_is_known_by_each_vendors_words() -> None:
    assert is_session_gone("No conversation found with session ID: 3b44")
    assert is_session_gone("Error: thread/resume failed: no rollout found for thread id 01a1 (code -32600)")
    assert is_session_gone("Error: Session not found")
    assert not is_session_gone("File not found")
