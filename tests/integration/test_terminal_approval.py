"""Approval at a real terminal: the question names caller, action, resource and rule, and the time to answer."""

import re
import time
from pathlib import Path

import pytest
from chat_harness import terminal

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
    with terminal(project, "delegate", "tidy", 'paths=["build", "dist"]') as screen:
        screen.until("Allow it?")
        for expected in ("tidy wants to remove build with everything in it.", "orchestrator → tidy", "ask-before-removing-folders"):
            assert expected in screen.text
        screen.until(" s)")
        assert re.search(r"\(1[12]\d s\)", screen.text)
        screen.type("y\n")
        screen.until("remove dist")
        screen.type("n\n")
        screen.until("removed build and refused")
        assert screen.exit_code() == 0


def test_always_approves_the_whole_tree(project: Path) -> None:
    with terminal(project, "delegate", "tidy", 'paths=["build", "dist", "out"]') as screen:
        screen.until("Allow it?")
        screen.type("a\n")
        screen.until("removed build and removed dist and removed out")
        assert screen.exit_code() == 0
        assert "remove dist with" not in screen.text


def test_keys_before_the_question_and_pasted_text_are_not_an_answer(project: Path) -> None:
    """Agent text is escaped, and Ctrl-D is a no."""
    with terminal(project, "delegate", "tidy", 'paths=["a\\u001b[2Jb\\u202e"]') as screen:
        screen.type("yyyy\n")
        screen.until("Allow it?")
        assert "a\x1b[2Jb" not in screen.raw
        assert "\u202e" not in screen.raw
        screen.type("yarn install\n")
        time.sleep(0.3)
        screen.type("\x04")
        screen.until("was not given")
        screen.exit_code()
        assert "removed a" not in screen.text
