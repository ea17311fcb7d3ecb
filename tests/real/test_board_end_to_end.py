"""The board with the real claude as researcher, planner and implementer, and a scripted model.

task → research → plan → implement (the remit process is killed with SIGKILL in phase 2 and run again) → review → todo, in a real
repository. Afterwards state.json, TODO.md, artifacts and git log agree, according to a reader that shares no code with remit.
"""

import asyncio
import re
import signal
from pathlib import Path

import pytest
from real_harness import CLAUDE, Harness, need, open_harness

from board_reader import disagreements, git, log_of, phases_of, state_of
from remit.testing import ModelRequest, Say, Silence, valid_return
from remit.testing import ModelTurn as Turn

pytestmark = pytest.mark.timeout(150)
PLAN = """# Plan

### Phase 1: Read rows [NOT STARTED]
- **Goal**: rows come out
- **Accept**: `test -s rows.py`

### Phase 2: Write CSV [NOT STARTED]
- **Goal**: a file goes in

### Phase 3: Document it [NOT STARTED]
- **Goal**: people can read of it
"""
FILES = {1: "rows.py", 2: "csv_out.py", 3: "docs.md"}
PLAN_PATH = "specs/001_write_rows_as_csv/plans/implementation-001.md"


class Model:
    """Scripted model of claude: it reads the prompt, writes the requested file with a shell command, and returns its result."""

    def __init__(self) -> None:
        self.is_stuck = True
        """In phase 2 the model writes a file and then stops answering."""
        self.did: list[str] = []

    def __call__(self, request: ModelRequest) -> Turn:
        asked = request.text
        if found := re.search(r"Carry out phase (\d+) of its plan", asked):
            return self._implements(request, int(found[1]))
        wanted = re.search(r"Write the (report|plan) to `([^`]+)`", asked)
        if wanted is None:
            return Say("Rows as CSV")  # claude also requests a title
        text = PLAN if wanted[1] == "plan" else "# Report\n\nRows are lines.\n"
        if not request.answers:
            self.did.append(wanted[1])
            return CLAUDE.shell(f"mkdir -p {Path(wanted[2]).parent} && cat > {wanted[2]} <<'END'\n{text}END")
        return Say(valid_return(request, f"Wrote the {wanted[1]}. It is short.", artifacts=[{"type": wanted[1], "path": wanted[2]}]))

    def _implements(self, request: ModelRequest, phase: int) -> Turn:
        if not request.answers:
            self.did.append(f"phase {phase}")
            return CLAUDE.shell(f"echo '# phase {phase}' > {FILES[phase]}")
        if phase == 2 and self.is_stuck:
            return Silence()
        made = [{"type": "implementation", "path": FILES[phase]}]
        return Say(valid_return(request, f"Wrote {FILES[phase]}. It says what it is.", artifacts=made))


async def remit(harness: Harness, *arguments: str) -> str:
    done = await asyncio.to_thread(harness.remit, *arguments)
    assert done.returncode == 0, f"remit {' '.join(arguments)}: {done.stdout}{done.stderr}\n{harness.models.faults}"
    return done.stdout + done.stderr


async def test_coding_agent_takes_a_task_from_creation_to_the_archive(tmp_path: Path) -> None:
    need(CLAUDE)
    model = Model()
    async with open_harness(tmp_path, model) as harness:
        harness.cast("claude", CLAUDE)
        roles = "".join(f'{role} = "claude"\n' for role in ("researcher", "planner", "implementer"))
        settings = harness.project / "remit.toml"
        settings.write_text(f"{settings.read_text()}\n[roles]\n{roles}")
        harness.begin_git()
        git(harness.project, "config", "user.name", "Ada")
        git(harness.project, "config", "user.email", "ada@example.com")

        await remit(harness, "task", "Write rows as CSV", "--language", "python")
        await remit(harness, "research", "1", "which", "separator")
        await remit(harness, "plan", "1")
        assert disagreements(harness.project) == []
        assert any("which separator" in request.text for request in harness.models.requests)

        running = harness.remit_started("implement", "1")
        await harness.wait_for_file(FILES[2])
        running.send_signal(signal.SIGKILL)
        running.wait()
        assert [marker for _, _, marker in phases_of(harness.project, PLAN_PATH)] == ["COMPLETED", "IN PROGRESS", "NOT STARTED"]

        model.is_stuck = False
        said = await remit(harness, "implement", "1")
        assert "Task 1 resumes from phase 2 (1 of 3 done)." in said
        assert model.did == ["report", "plan", "phase 1", "phase 2", "phase 2", "phase 3"]
        assert disagreements(harness.project) == []
        phases = [f"task 1 phase {number}: {name}" for number, name, _ in phases_of(harness.project, PLAN_PATH)]
        assert [subject for subject, _ in log_of(harness.project)][-4:] == [*phases, "task 1: complete implementation"]
        assert git(harness.project, "status", "--porcelain").strip() == ""

        await remit(harness, "review", "1")
        assert disagreements(harness.project) == []
        await remit(harness, "todo")
        assert disagreements(harness.project) == []
        assert state_of(harness.project)["active_projects"] == []
        await harness.wait_for_nobody()
