"""Commands that need an agent or a model are refused without one, with the lines to add."""

import tomllib
from pathlib import Path

import pytest
from cli_project import remit as run_remit

from remit import agent, run
from support.boards import read_plan
from support.repository import begin, git

PLAN = "specs/001_log_rotation_is_broken/plans/implementation-001.md"


@agent("reader")
async def reader() -> None:
    raise ValueError("boom")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    begin(tmp_path)
    assert run_remit(tmp_path, "task", "Log rotation is broken.").returncode == 0
    assert run("reader", root=tmp_path, agents=[reader]).status == "failed"
    return tmp_path


def state_of(root: Path) -> tuple[str, ...]:
    files = ("specs/state.json", "specs/TODO.md", ".remit/errors.json")
    return git(root, "log", "--format=%H"), git(root, "status", "--porcelain"), *((root / file).read_text() for file in files)


@pytest.mark.parametrize(
    ("words", "role"),
    [
        (("implement", "1"), "implementer"),
        (("implement", "1", "use sqlite"), "implementer"),
        (("errors",), "error-diagnostics-agent"),
        (("meta", "Finds dead links"), "meta-builder"),
    ],
)
def test_command_without_an_agent_is_refused_with_the_lines_to_add(project: Path, words: tuple[str, ...], role: str) -> None:
    before = state_of(project)
    ran = run_remit(project, *words)
    assert ran.returncode == 5, ran.stderr
    lines = [line.strip() for line in (ran.stdout + ran.stderr).splitlines() if line.startswith("    ")]
    toml = "\n".join(lines)
    added = tomllib.loads(toml[toml.index("[agents.") :])
    assert added["roles"] == {role: "claude"}
    assert added["agents"]["claude"]["kind"] == "claude"
    assert 'model = "' in ran.stdout + ran.stderr
    assert state_of(project) == before
    assert not (project / ".remit" / "agents").exists()


def test_plan_and_revise_write_templates_and_implement_is_refused(project: Path) -> None:
    assert run_remit(project, "plan", "1").returncode == 0
    (phase,) = read_plan((project / PLAN).read_text()).phases
    assert (phase.name, phase.goal) == ("Log rotation is broken", "Log rotation is broken.")
    assert run_remit(project, "revise", "1", "Rotate", "by", "size").returncode == 0
    again = (project / PLAN.replace("001.md", "002.md")).read_text()
    assert "> Rotate by size" in again
    assert [one.goal for one in read_plan(again).phases] == ["Log rotation is broken."]
    before = state_of(project)
    ran = run_remit(project, "implement", "1")
    assert (ran.returncode, state_of(project)) == (5, before)
