"""`remit backup`, `remit restore` and `remit prune`."""

import asyncio
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from remit import Remit
from support import cli
from support.clocks import JumpingClock


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "shop"
    root.mkdir()
    (root / "remit.toml").write_text("history_days = 30\n")
    assert cli.run("delegate", "worker.write_file", "path=a.txt", "content=hello", "--trust", cwd=root).code == 0
    assert cli.run("task", "Read unknown ages", cwd=root).code == 0
    return root


def sessions(root: Path) -> list[str]:
    return [one["session_id"] for one in cli.run_json("history", "--limit", "1000", cwd=root)["delegations"]]


def test_restored_backup_is_whole_and_read_only_until_adopted(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REMIT_TRUST", raising=False)
    file = tmp_path / "copy.zip"
    assert cli.run("backup", str(file), cwd=project).code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    other = tmp_path / "other"
    other.mkdir()
    done = cli.run("restore", str(file), "--root", str(other), cwd=other)
    assert done.code == 0
    assert "remit trust --adopt" in done.stdout
    assert sessions(other) == sessions(project)
    assert (other / "specs" / "TODO.md").read_text() == (project / "specs" / "TODO.md").read_text()
    assert (other / "remit.toml").read_text() == "history_days = 30\n"
    assert [stat.S_IMODE((other / ".remit" / name).stat().st_mode) for name in (".", "remit.db")] == [0o700, 0o600]
    refused = cli.run("delegate", "worker.list_files", cwd=other)
    assert (refused.code, "remit trust --adopt" in refused.stderr) == (5, True)
    assert cli.run("trust", "--adopt", cwd=other).code == 0
    assert cli.run("delegate", "worker.list_files", cwd=other).code == 0
    assert len(sessions(other)) == len(sessions(project)) + 1


def test_restore_over_a_record_needs_force_and_keeps_the_old_one(project: Path, tmp_path: Path) -> None:
    file = tmp_path / "copy.zip"
    cli.run("backup", str(file), cwd=project)
    before = (project / "specs" / "TODO.md").read_bytes()
    refused = cli.run("restore", str(file), cwd=project)
    assert (refused.code, "--force" in refused.stderr) == (5, True)
    assert cli.run("restore", str(file), "--force", cwd=project).code == 0
    (aside,) = project.glob("remit-before-restore-*")
    assert (aside / "specs" / "TODO.md").read_bytes() == before
    assert (aside / ".remit" / "remit.db").exists()


def test_backup_during_writes_is_consistent(project: Path, tmp_path: Path) -> None:
    script = (
        "import asyncio, sys\nfrom remit import Remit, agent\n"
        "@agent('noop')\nasync def noop() -> str:\n    return 'ok'\n"
        "async def main():\n"
        "    async with Remit.open(sys.argv[1], agents=[noop]) as remit:\n"
        "        print('open', flush=True)\n"
        "        for _ in range(300):\n            await remit.delegate('noop')\n"
        "        await asyncio.to_thread(sys.stdin.read)\n"
        "asyncio.run(main())\n"
    )
    writer = subprocess.Popen([sys.executable, "-I", "-c", script, str(project)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdin is not None
    writer.stdout.readline()
    for number in range(3):
        assert cli.run("backup", str(tmp_path / f"{number}.zip"), cwd=project).code == 0
    refused = cli.run("restore", str(tmp_path / "0.zip"), "--force", cwd=project)
    assert (refused.code, "Another process works in this project." in refused.stderr) == (5, True)
    writer.stdin.close()
    assert writer.wait(60) == 0
    writer.stdout.close()
    for number in range(3):
        other = tmp_path / f"other{number}"
        other.mkdir()
        assert cli.run("restore", str(tmp_path / f"{number}.zip"), "--root", str(other), cwd=other).code == 0
        assert set(sessions(project)) >= set(sessions(other))


def test_archive_with_paths_outside_the_project_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for name in ("../outside", "home/x", ".remit/../../x"):
        with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
            archive.writestr(".remit/remit.db", b"")
            archive.writestr(name, b"x")
        done = cli.run("restore", str(tmp_path / "bad.zip"), "--root", str(other), cwd=other)
        assert (done.code, "not a whole backup" in done.stderr, list(other.iterdir())) == (2, True, [])


async def test_prune_removes_only_older_records(tmp_path: Path) -> None:
    clock = JumpingClock()
    clock.jump(-40 * 86_400)
    async with Remit.open(tmp_path, clock=clock.as_clock()) as remit:
        old = await remit.delegate("worker.list_files")
    async with Remit.open(tmp_path) as remit:
        new = await remit.delegate("worker.list_files")

    def check_prune() -> None:
        assert cli.run_json("prune", "--older-than", "30d", "--dry-run", cwd=tmp_path)["would_forget"] == 1
        assert cli.run_json("prune", "--older-than", "30d", cwd=tmp_path)["forgotten"] == 1
        assert sessions(tmp_path) == [new.session_id]
        assert "Nothing to forget" in cli.run("prune", cwd=tmp_path).stdout

    assert old.session_id != new.session_id
    await asyncio.to_thread(check_prune)
