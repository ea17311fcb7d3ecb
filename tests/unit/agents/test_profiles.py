"""Profiles: agent files carried out by whichever agent is configured."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.agents.coding.dialects import may_change
from remit.agents.declarations import definitions_of
from remit.agents.definition import Definition, Kind
from remit.agents.profiles import Words, narrowed
from remit.agents.role_bindings import UnavailableAgent, why_unavailable
from remit.core.agents import WorkspaceKind
from remit.core.errors import Misused
from remit.system.settings_files import load_settings

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


def profile(root: Path, head: str, *, toml: str = BASE, folder: str = ".claude/agents") -> Definition:
    path = root / folder / "p.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: p\ndescription: Its own.\n{head}\n---\nYou are P.\n")
    (root / "remit.toml").write_text(toml)
    definitions, problems = definitions_of(root, load_settings(root, environ={}))
    assert problems == []
    return next(one for one in definitions if one.name == "p")


def test_a_profile_takes_over_what_its_carrier_declares_and_keeps_what_is_its_own(tmp_path: Path) -> None:
    found = profile(tmp_path, "model: haiku")
    assert (found.kind, found.runs_on, found.model, found.options) == (Kind.CLAUDE, "claude", "haiku", ("--fast",))
    assert (found.instructions, found.spec.description, found.spec.kind) == ("You are P.", "Its own.", "claude")
    assert (found.spec.timeout_seconds, found.spec.workspace, found.spec.merge) == (60, WorkspaceKind.WORKTREE, True)
    assert found.spec.source == str(tmp_path / ".claude/agents/p.md")


def test_what_a_profile_says_of_itself_comes_before_its_carrier(tmp_path: Path) -> None:
    found = profile(tmp_path, "remit:\n  timeout: 5\n  workspace: copy\n  delegates: true", folder=".remit/agents")
    assert (found.spec.timeout_seconds, found.spec.workspace, found.spec.merge, found.delegates) == (5, WorkspaceKind.COPY, False, True)


def test_without_a_name_the_first_coding_agent_carries_it_and_never_just_any_command(tmp_path: Path) -> None:
    assert profile(tmp_path, "", toml=OTHERS + BASE).runs_on == "claude"
    assert profile(tmp_path, "", toml=OTHERS).runs_on == "codex"
    assert profile(tmp_path, "", toml='[agents.sh]\ncommand = "cat"').kind is Kind.PROFILE


def test_the_settings_and_before_them_the_file_name_the_carrier(tmp_path: Path) -> None:
    toml = 'profiles_on = "sh"\n' + BASE + OTHERS
    found = profile(tmp_path, "", toml=toml)
    assert (found.runs_on, found.kind, found.command) == ("sh", Kind.COMMAND, ("cat",))
    assert profile(tmp_path, "remit: {runs_on: opencode}", toml=toml).kind is Kind.OPENCODE


def test_a_carrier_with_instructions_gives_them_first_and_is_not_chosen_before_a_plain_one(tmp_path: Path) -> None:
    house = '[agents.house]\nkind = "claude"\ninstructions = "House rules."\n'
    assert profile(tmp_path, "", toml=house).instructions == "House rules.\n\nYou are P."
    assert profile(tmp_path, "", toml=house + BASE).runs_on == "claude"


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


@pytest.mark.parametrize(("executor", "asked", "used"), MODELS)
def test_a_model_is_used_where_its_carrier_has_such_a_one(tmp_path: Path, executor: str, asked: str, used: str | None) -> None:
    toml = f'profiles_on = "{executor}"\n' + BASE + OTHERS
    assert profile(tmp_path, f"model: {asked}", toml=toml).model == used


def test_a_file_that_names_its_carrier_means_the_model_it_says(tmp_path: Path) -> None:
    assert profile(tmp_path, "model: own-thing\nremit: {runs_on: codex}", toml=OTHERS).model == "own-thing"


def test_tools_of_a_file_narrow_what_its_carrier_may_use_and_never_widen_it(tmp_path: Path) -> None:
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
]


@pytest.mark.parametrize("folder", [".claude/agents", ".opencode/agents"])
@pytest.mark.parametrize("said", WIDER)
def test_a_file_that_came_with_a_clone_cannot_say_what_would_widen_it(tmp_path: Path, folder: str, said: str) -> None:
    """It may be read without anybody's having looked at it."""
    path = tmp_path / folder / "p.md"
    path.parent.mkdir(parents=True)
    path.write_text(f"---\nname: p\ndescription: Its own.\nremit:\n  {said}\n---\nYou are P.\n")
    (tmp_path / "remit.toml").write_text(BASE)
    definitions, problems = definitions_of(tmp_path, load_settings(tmp_path, environ={}))
    assert [one.name for one in definitions] == ["claude"]
    assert len(problems) == 1
    assert f"line 5: {said.partition(':')[0]} would give it more than its executor has" in problems[0]


def test_what_is_allowed_under_remit_is_allowed(tmp_path: Path) -> None:
    assert profile(tmp_path, "remit: {allow: [WebFetch]}", folder=".remit/agents").allow == ("WebFetch",)


NARROWED = [
    (["*"], ["Read", "Bash(git *)"], (), ("Read", "Bash(git *)")),
    (["read", "execute"], ["Read", "Bash"], (), ("Read", "Bash")),
    (["edit"], ["Edit"], (), ("Edit",)),
    (["Edit", "Write"], ["Edit"], (), ("Edit",)),
    (["Edit", "Write"], ["edit"], (), ("Edit", "Write")),
    (["edit"], None, ["Write"], ()),
    (["read", "execute"], None, ["Grep"], ("execute",)),
    (["mcp__db__query", "mcp__web__get"], ["mcp__db"], (), ("mcp__db__query",)),
    (["mcp__db"], ["mcp__db__query"], (), ("mcp__db__query",)),
    (["Bash(git *)"], ["Bash(git log*)"], (), ("Bash(git log*)",)),
    (["execute:git *"], ["Bash"], (), ("Bash(git *)",)),
    (["Bash(git *)"], ["Bash(rm *)"], (), ()),
    (["Bash(git *)", "Read"], None, ["Bash(git push*)"], ("Read",)),
    (["execute", "Read"], None, ["Bash"], ("Read",)),
    (["Bash(ls*)"], None, ["Bash(rm*)"], ("Bash(ls*)",)),
    (["Read"], None, ["*"], ()),
]


@pytest.mark.parametrize(("allow", "tools", "without", "left"), NARROWED)
def test_names_of_tools_are_compared_by_what_they_mean(
    allow: list[str], tools: list[str] | None, without: list[str], left: tuple[str, ...]
) -> None:
    assert narrowed(allow, tools, without) == left


def test_an_agent_that_is_asked_by_kind_is_told_kinds() -> None:
    assert narrowed(["read", "execute:git *", "edit"], ["Read", "Bash"], (), Words.KINDS) == ("read", "execute:git *")


def test_everything_but_one_is_everything_else() -> None:
    left = narrowed(["*"], None, ["Bash"])
    assert "*" not in left
    assert "read" in left
    assert not {"bash", "execute", "shell"} & set(left)


def test_a_file_that_only_reads_does_not_write_on_codex_either(tmp_path: Path) -> None:
    """Its empty list means all that its sandbox lets pass: a file that names tools must not end up there."""
    toml = '[agents.codex]\nkind = "codex"\n'
    assert not may_change(profile(tmp_path, "tools: Read, Grep", toml=toml).allow)
    assert not may_change(profile(tmp_path, "tools: []", toml=toml).allow)
    assert may_change(profile(tmp_path, "tools: Read, Edit", toml=toml).allow)
    assert profile(tmp_path, "", toml=toml).allow == ()


names = st.text("ABCabc_*()[]", max_size=6)


@given(allow=st.lists(names), tools=st.none() | st.lists(names), without=st.lists(names))
def test_what_is_denied_is_never_left_and_no_spelling_makes_it_fail(allow: list[str], tools: list[str] | None, without: list[str]) -> None:
    assert not set(narrowed(allow, tools, without)) & {one for one in without if one.isalpha()}
    assert narrowed(allow, [], without) == ()


async def test_a_profile_nobody_can_carry_out_says_which_lines_are_missing(tmp_path: Path) -> None:
    found = profile(tmp_path, "", toml="")
    agent = UnavailableAgent(found)
    assert agent.check({"task": "x"}) == {"task": "x"}
    with pytest.raises(Misused, match="task"):
        agent.check({})
    error = why_unavailable(found)
    assert error.code == "TOOL_UNAVAILABLE"
    assert "[agents.claude]" in error.advice
    assert "remit agents --detect" in error.advice
    named = why_unavailable(profile(tmp_path, "", toml='profiles_on = "gone"'))
    assert "'gone'" in named.message
    assert "[agents.gone]" in named.advice
