"""A person is asked at a real terminal: who wants what, on which resource, by which rule, with a clock."""

import re
import time
from pathlib import Path

import pytest
from chat_harness import terminal
from cli_project import remit

AGENTS = """
from remit import agent

@agent(effects=("delete",), acts_on={"path": "path"})
async def wipe(ctx, path: str, recursive: bool = False):
    return f"removed {path}"

@agent
async def tidy(ctx, paths: list[str]):
    done = [await ctx.delegate("wipe", path=path, recursive=True) for path in paths]
    return " and ".join(f"{one.data or one.stop_reason}" for one in done)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".remit" / "agents").mkdir(parents=True)
    (tmp_path / ".remit" / "agents" / "tidying.py").write_text(AGENTS)
    return tmp_path


def test_yes_approves_one_run(project: Path) -> None:
    with terminal(project, "delegate", "tidy", 'paths=["build", "dist"]') as shown:
        shown.until("Allow it?")
        for words in ("tidy wants to remove build with everything in it.", "orchestrator → tidy", "ask-before-removing-folders"):
            assert words in shown.text
        shown.until(" s)")
        assert re.search(r"\(1[12]\d s\)", shown.text)
        shown.type("y")
        shown.until("remove dist")
        shown.type("n")
        shown.until("removed build and refused")
        assert shown.ended() == 0


def test_always_approves_the_whole_tree(project: Path) -> None:
    with terminal(project, "delegate", "tidy", 'paths=["build", "dist", "out"]') as shown:
        shown.until("Allow it?")
        shown.type("a")
        shown.until("removed build and removed dist and removed out")
        assert shown.ended() == 0
        assert "remove dist with" not in shown.text


def test_no_answer_is_a_refusal_at_the_timeout(project: Path) -> None:
    (project / "remit.toml").write_text("approval_seconds = 1.2\n")
    with terminal(project, "delegate", "tidy", 'paths=["build"]') as shown:
        shown.until("Allow it?")
        shown.until("no answer")
        shown.until("refused")
        shown.ended()
    assert '"by":"no answer within 1.2 s"' in (project / ".remit" / "audit.jsonl").read_text()


def test_typeahead_is_not_an_answer_and_agent_text_is_escaped(project: Path) -> None:
    with terminal(project, "delegate", "tidy", 'paths=["a\\u001b[2Jb\\u202e"]') as shown:
        shown.type("yyyy\n")
        shown.until("Allow it?")
        assert "a\x1b[2Jb" not in shown.raw
        assert "\u202e" not in shown.raw
        shown.type("n")
        shown.until("refused")


def test_ctrl_c_at_the_question_cancels_the_delegation(project: Path) -> None:
    with terminal(project, "delegate", "tidy", 'paths=["build"]') as shown:
        shown.until("Allow it?")
        shown.type("\x03")
        assert shown.ended() in (130, 6, 3)


def test_approval_without_a_terminal_is_refused(project: Path) -> None:
    ran = remit(project, "delegate", "tidy", 'paths=["build"]')
    assert "refused" in ran.stdout
    assert "no person can be asked" in ran.stdout


def test_pasted_text_is_not_an_answer_and_ctrl_d_is_no(project: Path) -> None:
    with terminal(project, "delegate", "tidy", 'paths=["a"]') as opened:
        opened.until("Allow it?")
        opened.type("yarn install")
        time.sleep(0.3)
        opened.type("\x04")
        opened.until("was not given")
        opened.ended()
        assert "removed a" not in opened.text
