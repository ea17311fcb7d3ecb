"""The control group of a run, tested on a directory laid out like the kernel's."""

from pathlib import Path

import pytest

from remit.system.sandbox.cgroup import make_group


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    """The group of this process and its parent, which may limit memory."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = next((line[3:].lstrip("/") for line in lines if line.startswith("0::")), "")
    (tmp_path / own).mkdir(parents=True, exist_ok=True)
    ((tmp_path / own).parent if own else tmp_path).joinpath("cgroup.subtree_control").write_text("cpu memory pids\n")
    return tmp_path


def test_run_gets_a_group_with_its_memory_limit(mount: Path) -> None:
    group = make_group(100 << 20, mount=mount)
    assert group is not None
    assert (group.folder / "memory.max").read_text() == str(100 << 20)
    assert (group.folder / "memory.swap.max").read_text() == "0"
    assert not group.was_exceeded()
    (group.folder / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 1\noom_kill 3\n")
    assert group.was_exceeded()


def test_no_group_is_made_without_the_memory_controller(mount: Path) -> None:
    for path in mount.rglob("cgroup.subtree_control"):
        path.write_text("cpu\n")
    assert make_group(100 << 20, mount=mount) is None
    assert make_group(100 << 20, mount=mount / "missing") is None


def test_groups_of_killed_processes_are_removed(mount: Path) -> None:
    group = make_group(100 << 20, mount=mount)
    assert group is not None
    left = group.folder.parent / "remit-run-999999999-aa"
    left.mkdir()
    assert make_group(100 << 20, mount=mount) is not None
    assert not left.exists()
    assert group.folder.exists()
