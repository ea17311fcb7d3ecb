"""Other users of the machine cannot read remit's project state, regardless of the umask."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit import BlockingContext, Failed, Remit, agent
from support import cli
from support.repository import begin, git

SHARED = ("agents", "commands", "context", "policy.cedar", ".gitignore")
"""Files of the repository: git decides their permissions."""
WITHIN = ("scratch", "work")
"""Agents write the files below these; the directory of each session is private."""


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def visible_to_others(project: Path) -> list[str]:
    """Files in `.remit` that another user could read if `.remit` itself were accessible."""
    found = []
    for folder, folders, files in os.walk(project / ".remit"):
        inside = Path(folder).relative_to(project / ".remit")
        for name in files:
            path = Path(folder) / name
            if (inside / name).parts[0] not in SHARED and not path.is_symlink() and stat.S_IMODE(path.lstat().st_mode) & 0o077:
                found.append(str(inside / name))
        folders[:] = [name for name in folders if name not in WITHIN]
    return found


@agent("steps", isolation="process", workspace="worktree")
def steps(ctx: BlockingContext) -> str:
    (ctx.workspace / "made.txt").write_text("made")
    (ctx.scratch / "note.txt").write_text("note")
    return "done"


@agent("broken")
def broken() -> str:
    raise Failed("It does not work.")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    begin(tmp_path)
    git(tmp_path, "commit", "-qm", "x", "--allow-empty")
    return tmp_path


async def test_state_files_in_the_project_are_readable_only_by_their_owner(repository: Path) -> None:
    async with Remit.open(repository, agents=[steps, broken]) as remit:
        assert (await remit.delegate("steps")).ok
        assert not (await remit.delegate("broken")).ok
        assert visible_to_others(repository) == []  # the write-ahead log exists while it is open
        assert {path.name for path in (repository / ".remit").iterdir()} >= {"remit.db-wal", "run", "scratch", "work"}
    assert cli.run("task", "Write it down", cwd=repository).code == 0
    assert cli.run("token", "new", "reader", cwd=repository).code == 0
    assert stat.S_IMODE((repository / ".remit").stat().st_mode) == 0o700
    assert (repository / ".remit" / "errors.json").exists()
    assert visible_to_others(repository) == []
    assert stat.S_IMODE((repository / "specs" / "TODO.md").stat().st_mode) == 0o666, "project files follow the umask"


def test_permissions_of_an_existing_state_directory_are_tightened(tmp_path: Path) -> None:
    (tmp_path / ".remit").mkdir(mode=0o777)
    assert cli.run("task", "Write it down", cwd=tmp_path).code == 0
    assert stat.S_IMODE((tmp_path / ".remit").stat().st_mode) == 0o700


def test_state_files_outside_projects_are_readable_only_by_their_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("REMIT_TRUST")
    (tmp_path / "remit.toml").write_text('[agents.x]\ncommand = ["true"]\n')
    (tmp_path / "remit.toml").chmod(0o644)
    assert cli.run("trust", "--yes", cwd=tmp_path).code == 0
    kept = [path for path in (tmp_path / "state" / "remit").rglob("*") if path.is_file()]
    assert kept
    assert [path.name for path in kept if stat.S_IMODE(path.stat().st_mode) & 0o077] == []
    assert stat.S_IMODE((tmp_path / "state" / "remit").stat().st_mode) == 0o700
