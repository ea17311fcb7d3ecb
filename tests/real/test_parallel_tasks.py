"""Three parallel tasks with real coding agents and a scripted model: one conflicts, one fails acceptance, none lists its files."""

import asyncio
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from real_harness import CLAUDE, CODEX, OPENCODE, Coder, need, open_harness

from board_reader import git, log_of, state_of
from remit.testing import ModelRequest, Say, valid_return
from remit.testing import ModelTurn as Turn

pytestmark = pytest.mark.timeout(200)
DOINGS = {
    "Say good morning": "echo 'good morning' > README",
    "Say good evening": "echo 'good evening' > README",
    "Break it": "touch broken",
}


class Model:
    """Scripted model of the coding agent: one command per task, another one for a repair, and no listed files."""

    def __init__(self, coder: Coder) -> None:
        self.coder = coder
        self.did: list[tuple[str, bool]] = []

    def __call__(self, request: ModelRequest) -> Turn:
        title = next((title for title in DOINGS if title in request.text), "")
        turn = (title, "cannot be merged yet" in request.text)
        if turn in self.did or not title:
            return Say(valid_return(request, f"Did it: {title}. It was short.", artifacts=[]))
        self.did.append(turn)
        again = "date > broken" if title == "Break it" else "echo 'good day' > README"
        return self.coder.shell(again if turn[1] else DOINGS[title])


@pytest.mark.parametrize(
    "coder",
    [CLAUDE, pytest.param(CODEX, marks=pytest.mark.lab), pytest.param(OPENCODE, marks=pytest.mark.lab)],
    ids=lambda one: one.name,
)
async def test_three_parallel_tasks_get_one_verdict_each(tmp_path: Path, coder: Coder) -> None:
    need(coder)
    model = Model(coder)
    async with open_harness(tmp_path, model) as harness:
        harness.settings["workspace"] = {"accept": ["test ! -e broken"]}
        harness.cast("coder1", coder)
        settings = harness.project / "remit.toml"
        settings.write_text(f'{settings.read_text()}\n[roles]\nimplementer = "coder1"\n')
        (harness.project / "README").write_text("Hello\n")
        harness.begin_git()
        git(harness.project, "config", "user.name", "Ada")
        git(harness.project, "config", "user.email", "ada@example.com")
        for title in DOINGS:
            done = await asyncio.to_thread(harness.remit, "task", title, "--language", "python")
            assert done.returncode == 0, done.stderr
        if coder is OPENCODE:  # concurrent first starts in a new home collide on its database
            await asyncio.to_thread(harness.remit, "delegate", "coder1", "Say hello")
        command = [sys.executable, "-m", "remit.cli.main", "implement", "--ready", "--parallel", "3"]
        run = partial(subprocess.run, command, cwd=harness.project, capture_output=True, text=True, timeout=180)
        done = await asyncio.to_thread(run)
        explain = f"{done.stdout}{done.stderr}\n{harness.models.faults}"
        assert done.returncode == 3, explain
        assert "MERGE_RED" in explain
        statuses = {entry["title"]: entry["status"] for entry in state_of(harness.project)["active_projects"]}
        assert statuses == {"Say good morning": "completed", "Say good evening": "completed", "Break it": "partial"}, explain
        again = [title for title, is_again in model.did if is_again and title != "Break it"]
        assert len(again) == 1, "the second task to land conflicts and returns to its session"
        assert git(harness.project, "show", "HEAD:README") == "good day\n"
        assert "broken" not in git(harness.project, "ls-tree", "--name-only", "HEAD").split()
        subjects = [subject for subject, _ in log_of(harness.project)]
        assert sum(subject in ("task 1: Say good morning", "task 2: Say good evening") for subject in subjects) == 2
        assert not [subject for subject in subjects if subject == "task 3: Break it"]
        await harness.wait_for_nobody()
