"""Agents from settings and agent files: discovery, precedence, and errors of invalid files."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import AgentDefinition, load_settings
from remit.agents.agent_files import page_of
from remit.agents.declarations import all_joined, declarations_of
from remit.agents.definition import Kind, PromptBy
from support.pace import allowed

CLAUDE = "---\nname: reviewer\ndescription: Reviews code.\ntools: Read, Grep, Bash(git diff:*)\nmodel: sonnet\n---\nYou review code.\n"
OPENCODE = "---\ndescription: Writes documents.\nmode: subagent\nmodel: anthropic/claude-x\npermission:\n  bash: deny\n---\nYou write.\n"


def project(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return root


def read(root: Path, files: dict[str, str | bytes] | None = None) -> tuple[dict[str, AgentDefinition], list[str]]:
    project(root, files or {})
    definitions, problems = all_joined(declarations_of(root, load_settings(root, environ={})))
    return {definition.name: definition for definition in definitions}, problems


def test_agents_are_read_from_settings_and_all_kinds_of_files(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "remit.toml": '[agents.wc]\ncommand = "wc -w"\ndescription = "Counts."\n',
        ".remit/agents/own.md": "---\ndescription: Ours.\nremit:\n  command: [cat]\n  prompt: argument\n  timeout: 30\n---\nAgain.\n",
        ".claude/agents/team/reviewer.md": CLAUDE,
        ".opencode/agent/writer.md": OPENCODE,
        ".opencode/agents/deep/planner.md": "---\ndescription: Plans.\n---\nYou plan.\n",
    }
    agents, problems = read(tmp_path, files)
    assert problems == []
    assert list(agents) == ["wc", "own", "reviewer", "writer", "planner"]
    assert (agents["wc"].kind, agents["wc"].command, agents["wc"].spec.source) == (Kind.COMMAND, ("wc", "-w"), "remit.toml:[agents.wc]")
    own = agents["own"]
    assert (own.kind, own.prompt, own.spec.timeout_seconds, own.instructions) == (Kind.COMMAND, PromptBy.ARGUMENT, 30, "Again.")
    assert (agents["reviewer"].kind, agents["reviewer"].instructions) == (Kind.PROFILE, "You review code.")
    assert agents["reviewer"].spec.source == str(tmp_path / ".claude/agents/team/reviewer.md")


FAULTY: list[tuple[str, str | bytes, str]] = [
    (".claude/agents/x.md", "---\nname: x\ndescription: [unclosed\n---\n", "x.md: line 4: its front matter is not YAML"),
    (".claude/agents/x.md", "---\ndescription: It has no name.\n---\n", "x.md: it has no name"),
    (".claude/agents/x.md", "---\nname: 12\n---\n", "x.md: name must be text"),
    (".claude/agents/x.md", "---\nname: my agent\n---\n", "x.md: 'my agent' is not a name"),
    (".claude/agents/x.md", "---\nname: x\ntools: {a: b}\n---\n", "x.md: tools must be names"),
    (".claude/agents/x.md", "---\nname: x\nmodel: 3\n---\n", "x.md: model: "),
    (".claude/agents/x.md", "---\nname: x\nnever ended\n", "x.md: its front matter does not end"),
    (".claude/agents/x.md", "---\n- a\n- b\n---\n", "x.md: the front matter must be keys and values"),
    (".claude/agents/x.md", b"---\nname: x\n---\n\xff\xfe", "x.md: it is not UTF-8"),
    (".claude/agents/x.md", b"---\nname: x\0\n---\n", "x.md: it is not text"),
    (".claude/agents/x.md", b"---\nname: x\n---\n" + b"a" * 1_100_000, "x.md: it is larger than 1024 KiB"),
    (".claude/agents/x.md", "---\nname: x\nwhen: 2024-99-99\n---\n", "x.md: its front matter is not YAML: month must be in 1..12"),
    (".claude/agents/x.md", "---\nname: x\na: &a [1]\nb: *a\n---\n", "x.md: line 4: its front matter is not YAML: aliases"),
    (
        ".claude/agents/x.md",
        "---\nname: x\ndeep: " + "[" * 2000 + "\n---\n",
        "x.md: line 3: its front matter is not YAML: it is nested too deeply",
    ),
    (".opencode/agent/x.md", "---\npermission: 3\n---\n", "x.md: permission must name tools"),
    (".opencode/agent/a b.md", "---\ndescription: x\n---\n", "a b.md: 'a b' is not a name"),
    (".remit/agents/x.md", "No head at all.\n", "x.md: it has no front matter"),
    (".remit/agents/x.md", "---\ncommand: cat\n---\n", "x.md: command belongs under remit:"),
    (".remit/agents/x.md", "---\nremit: 3\n---\n", "x.md: remit must contain keys"),
    (".remit/agents/x.md", "---\nremit:\n  comand: cat\n---\n", "x.md: comand: there is no such key (did you mean command?)"),
    (".remit/agents/x.md", "---\nremit:\n  kind: profile\n  command: cat\n---\n", "x.md: command: a profile cannot have a command"),
    (
        ".remit/agents/x.md",
        "---\ntools: worker.read_file\nremit:\n  kind: model\ntools: coder\n---\nYou help.\n",
        "x.md: line 5: its front matter is not YAML: tools is given twice",
    ),
    ("remit.toml", '[agents.x]\nkind = "acp"\n', 'remit.toml:[agents.x]: kind = "acp" needs a command'),
    ("remit.toml", '[agents."a b"]\nkind = "claude"\n', "remit.toml:[agents.a b]: 'a b' is not a name"),
]


@pytest.mark.parametrize(("name", "text", "expected"), FAULTY, ids=[expected for _, _, expected in FAULTY])
def test_invalid_file_is_reported_in_one_line_and_others_load(tmp_path: Path, name: str, text: str, expected: str) -> None:
    agents, problems = read(tmp_path, {name: text, ".claude/agents/good.md": CLAUDE})
    assert list(agents) == ["reviewer"]
    assert len(problems) == 1
    assert expected in problems[0]
    assert "\n" not in problems[0]


def test_links_out_of_the_project_and_unreadable_files_are_reported(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    inside = project(tmp_path / "inside", {".claude/agents/good.md": CLAUDE})
    project(outside, {"a.md": CLAUDE, "agents/b.md": CLAUDE})
    folder = inside / ".claude" / "agents"
    (folder / "link.md").symlink_to(outside / "a.md")
    (folder / "circle.md").symlink_to(folder / "circle.md")
    (folder / "gone.md").symlink_to(outside / "gone.md")
    os.mkfifo(folder / "pipe.md")
    (inside / ".opencode").mkdir()
    (inside / ".opencode" / "agent").symlink_to(outside / "agents")
    agents, problems = read(inside)
    assert list(agents) == ["reviewer"]
    assert sorted(Path(line.partition(": ")[0]).name for line in problems) == ["agent", "circle.md", "gone.md", "link.md", "pipe.md"]
    assert sum("leads out of the project" in line for line in problems) == 2


def test_precedence_is_settings_then_remit_then_claude_then_opencode(tmp_path: Path) -> None:
    head = "---\nname: x\ndescription: {}\n---\n"
    files: dict[str, str | bytes] = {
        "remit.toml": '[agents.x]\ncommand = "cat"\n',
        ".remit/agents/x.md": head.format("ours"),
        ".claude/agents/a.md": head.format("claude"),
        ".opencode/agent/x.md": head.format("opencode"),
    }
    project(tmp_path, files)
    for winner in files:
        agents, problems = read(tmp_path)
        assert agents["x"].spec.source.replace(":[agents.x]", "").endswith(winner)
        assert len(problems) == len(files) - 1 - list(files).index(winner)
        assert all("'x'" in line and winner in line.partition(": ")[2] for line in problems)
        (tmp_path / winner).unlink()


def test_front_matter_is_parsed_in_linear_time() -> None:
    """Spaces within a line once took quadratic time: 13 s for these."""
    began = time.monotonic()
    page = page_of(f"---\ndescription: b{' ' * 60_000}x: y\n---\nYou help.\n", Path("helper.md"))
    assert page is not None
    assert page.head["description"].endswith("x: y")
    assert time.monotonic() - began < allowed(5)


heads = st.text(st.characters(codec="utf-8"), max_size=200)
yaml_like = st.lists(
    st.sampled_from(
        ["name: x", "tools:", "  - a", "remit:", "  timeout: 1e999", "? [a]", "!!int x", "!!timestamp y", "a: &b", "*b", "- ", "key: |"]
    ),
    max_size=8,
).map("\n".join)


@given(head=heads | yaml_like, body=heads, folder=st.sampled_from([".remit/agents", ".claude/agents", ".opencode/agent"]))
def test_no_text_makes_reading_fail(tmp_path_factory: pytest.TempPathFactory, head: str, body: str, folder: str) -> None:
    root = tmp_path_factory.mktemp("any")
    agents, problems = read(root, {f"{folder}/x.md": f"---\n{head}\n---\n{body}", ".claude/agents/good.md": CLAUDE})
    assert "reviewer" in agents
    assert len(problems) <= 1
