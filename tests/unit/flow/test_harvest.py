"""The harvest: everything that a stopped agent left, in bounded time, and no files of others."""

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from remit import Artifact
from remit.runtime import harvest as module
from remit.runtime.harvest import Harvest, HarvestRequest, harvest
from remit.system.artifact_files import FILE_CLOCK_LAG_SECONDS


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "before.md").write_text("from before")
    time.sleep(2 * FILE_CLOCK_LAG_SECONDS)
    return tmp_path


def paths(found: Harvest) -> list[str]:
    return sorted(artifact.path for artifact in found.artifacts)


async def test_new_file_with_an_old_date_is_found(root: Path) -> None:
    since = time.time()
    (root / "unpacked.csv").write_text("1,2")
    os.utime(root / "unpacked.csv", (1, 1))
    assert paths(await harvest(HarvestRequest(root=root, since=since, scan_root=True))) == ["unpacked.csv"]


async def test_own_scratch_folder_is_harvested_and_others_are_not(root: Path) -> None:
    scratch = root / ".remit" / "scratch" / "sess_1"
    (scratch / "node_modules").mkdir(parents=True)
    (scratch / "node_modules" / "notes.txt").write_text("mine")
    (scratch.parent / "sess_2").mkdir()
    (scratch.parent / "sess_2" / "other.txt").write_text("another's")
    found = await harvest(HarvestRequest(root=root, scratch=scratch, since=time.time() + 100, scan_root=True))
    assert paths(found) == [".remit/scratch/sess_1/node_modules/notes.txt"]


async def test_files_of_tools_are_ignored(root: Path) -> None:
    for folder in (".git", ".remit", "node_modules", ".venv", "__pycache__", "a/__pycache__"):
        (root / folder).mkdir(parents=True)
        (root / folder / "x").write_text("x")
    assert paths(await harvest(HarvestRequest(root=root, since=0.0, scan_root=True))) == ["before.md"]


async def test_empty_files_are_omitted_and_links_are_not_followed(root: Path) -> None:
    since = time.time()
    (root / "empty.md").touch()
    (root / "link").symlink_to("/etc")
    (root / "passwd").symlink_to("/etc/passwd")
    os.mkfifo(root / "pipe")
    found = await harvest(HarvestRequest(root=root, since=since, scan_root=True))
    assert found == Harvest()


async def test_file_written_before_the_request_is_found_during_another_search(root: Path) -> None:
    since = time.time()
    running = []
    for number in range(30):
        (root / f"{number}.md").write_text("x")
        running.append(asyncio.create_task(harvest(HarvestRequest(root=root, since=since, scan_root=True))))
        await asyncio.sleep(0.001)
    for number, found in enumerate(await asyncio.gather(*running)):
        assert f"{number}.md" in paths(found)


async def test_harvest_ends_in_time_and_keeps_unhashed_files(root: Path) -> None:
    since = time.time()
    (root / "huge.bin").touch()
    os.truncate(root / "huge.bin", 64 << 30)
    (root / "small.md").write_text("small")
    found = await harvest(HarvestRequest(root=root, since=since, scan_root=True), seconds=0.2)
    assert paths(found) == ["huge.bin", "small.md"]
    assert any("without a hash" in warning for warning in found.warnings)


async def test_request_that_leaves_takes_no_files_from_those_that_share_its_search(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, go_on, search = threading.Event(), threading.Event(), module.search

    def held(*what: Any) -> Any:
        asked.set()
        assert go_on.wait(10)
        return search(*what)

    monkeypatch.setattr(module, "search", held)
    since = time.time()
    (root / "new.md").write_text("new")
    first, second = (asyncio.create_task(harvest(HarvestRequest(root=root, since=since, scan_root=True))) for _ in range(2))
    assert await asyncio.to_thread(asked.wait, 10)
    first.cancel()
    go_on.set()
    assert paths(await second) == ["new.md"]


async def test_file_system_that_hangs_takes_one_thread(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, searches = threading.Event(), list[Any]()

    def hanging(*what: Any) -> Any:
        searches.append(what)
        assert go_on.wait(10)
        return module.SearchResult()

    monkeypatch.setattr(module, "search", hanging)
    (root / "mine.md").write_text("mine")
    declared = (Artifact(type="report", path="mine.md"),)
    request = HarvestRequest(root=root, since=time.time(), scan_root=True, declared=declared)
    for _ in range(3):
        found = await harvest(request, seconds=0.05)
        assert found.artifacts == declared
        assert "did not answer" in found.warnings[0]
    go_on.set()
    assert len(searches) == 1
