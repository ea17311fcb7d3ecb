"""Profiles: agent files executed by a configured agent."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import AgentDefinition, load_settings
from remit.agents.declarations import all_joined, declarations_of
from remit.agents.definition import Kind
from remit.agents.profiles import narrow_tools
from remit.core.agents import WorkspaceKind

BASE = """
[agents.claude]
kind = "claude"
timeout = 60
workspace = "worktree"
merge = true
allow = ["Read", "Edit", "Bash(git *)"]
model = "opus"
options = ["--fast"]
"""
OTHERS = """
[agents.codex]
kind = "codex"
model = "gpt-5"
[agents.opencode]
kind = "opencode"
model = "local/small"
[agents.sh]
command = "cat"
"""


def profile(root: Path, head: str, *, toml: str = BASE, folder: str = ".claude/agents") -> AgentDefinition:
    path = root / folder / "p.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: p\ndescription: Its own.\n{head}\n---\nYou are P.\n")
    (root / "remit.toml").write_text(toml)
    definitions, problems = all_joined(declarations_of(root, load_settings(root, environ={})))
    assert problems == []
    return next(one for one in definitions if one.name == "p")


def test_profile_inherits_from_its_executor(tmp_path: Path) -> None:
    found = profile(tmp_path, "model: haiku")
    assert (found.kind, found.runs_on, found.model, found.options) == (Kind.CLAUDE, "claude", "haiku", ("--fast",))
    assert (found.instructions, found.spec.description, found.spec.kind) == ("You are P.", "Its own.", "claude")
    assert (found.spec.timeout_seconds, found.spec.workspace, found.spec.merge) == (60, WorkspaceKind.WORKTREE, True)
    assert found.spec.source == str(tmp_path / ".claude/agents/p.md")


def test_own_values_of_a_profile_take_precedence(tmp_path: Path) -> None:
    found = profile(tmp_path, "remit:\n  timeout: 5\n  workspace: scratch\n  delegates: true", folder=".remit/agents")
    assert (found.spec.timeout_seconds, found.spec.workspace, found.spec.merge, found.delegates) == (5, WorkspaceKind.SCRATCH, False, True)


def test_first_coding_agent_is_the_default_executor_and_never_a_command(tmp_path: Path) -> None:
    assert profile(tmp_path, "", toml=OTHERS + BASE).runs_on == "claude"
    assert profile(tmp_path, "", toml=OTHERS).runs_on == "codex"
    assert profile(tmp_path, "", toml='[agents.sh]\ncommand = "cat"').kind is Kind.PROFILE


def test_file_then_settings_name_the_executor(tmp_path: Path) -> None:
    toml = 'profiles_on = "sh"\n' + BASE + OTHERS
    found = profile(tmp_path, "", toml=toml)
    assert (found.runs_on, found.kind, found.command) == ("sh", Kind.COMMAND, ("cat",))
    assert profile(tmp_path, "remit: {runs_on: opencode}", toml=toml).kind is Kind.OPENCODE


MODELS = [
    ("claude", "sonnet", "sonnet"),
    ("claude", "claude-opus-4-1", "claude-opus-4-1"),
    ("claude", "anthropic/claude-opus-4-1", "claude-opus-4-1"),
    ("claude", "inherit", "opus"),
    ("claude", "openai/gpt-5", "opus"),
    ("codex", "openai/gpt-6", "gpt-6"),
    ("codex", "o9", "o9"),
    ("codex", "sonnet", "gpt-5"),
    ("opencode", "openai/gpt-6", "openai/gpt-6"),
    ("opencode", "sonnet", "local/small"),
    ("sh", "sonnet", None),
]


@pytest.mark.parametrize(("executor", "model", "used"), MODELS)
def test_model_of_a_file_is_used_where_its_executor_has_it(tmp_path: Path, executor: str, model: str, used: str | None) -> None:
    assert profile(tmp_path, f"model: {model}", toml=f'profiles_on = "{executor}"\n{BASE}{OTHERS}').model == used


def test_tools_of_a_file_only_narrow_those_of_the_executor(tmp_path: Path) -> None:
    assert profile(tmp_path, "tools: Read, Bash, WebFetch").allow == ("Read", "Bash(git *)")
    assert profile(tmp_path, "disallowedTools: Bash").allow == ("Read", "Edit")
    assert profile(tmp_path, "tools: []").allow == ()
    denied = "permission:\n  edit: deny\n  bash:\n    'git push*': deny"
    (tmp_path / ".claude/agents/p.md").unlink()
    assert profile(tmp_path, denied, folder=".opencode/agent").allow == ("Read",)


WIDER = [
    "command: [sh, -c, id]",
    "kind: claude",
    "options: [--dangerously-skip-permissions]",
    "environment: {LD_PRELOAD: ./x.so}",
    "pass_environment: ['*']",
    "allow: ['*']",
    "delegates: true",
    "merge: true",
    "workspace: shared",
    "effects: [read]",
    "retries: 100",
    "group: [claude]",
]


@pytest.mark.parametrize("folder", [".claude/agents", ".opencode/agents"])
@pytest.mark.parametrize("said", WIDER)
def test_file_from_a_clone_cannot_widen_its_permissions(tmp_path: Path, folder: str, said: str) -> None:
    path = tmp_path / folder / "p.md"
    path.parent.mkdir(parents=True)
    path.write_text(f"---\nname: p\ndescription: Its own.\nremit:\n  {said}\n---\n")
    (tmp_path / "remit.toml").write_text(BASE)
    definitions, problems = all_joined(declarations_of(tmp_path, load_settings(tmp_path, environ={})))
    assert [one.name for one in definitions] == ["claude"]
    assert len(problems) == 1
    assert f"{said.partition(':')[0]} would give it more than its executor has" in problems[0]


def test_own_file_may_set_allow(tmp_path: Path) -> None:
    assert profile(tmp_path, "remit: {allow: [WebFetch]}", folder=".remit/agents").allow == ("WebFetch",)


names = st.text("ABCabc_*()[]", max_size=6)


@given(allow=st.lists(names), tools=st.none() | st.lists(names), without=st.lists(names))
def test_denied_tool_is_never_left_for_any_spelling(allow: list[str], tools: list[str] | None, without: list[str]) -> None:
    assert not set(narrow_tools(allow, tools, without)) & {one for one in without if one.isalpha()}
    assert narrow_tools(allow, [], without) == ()
