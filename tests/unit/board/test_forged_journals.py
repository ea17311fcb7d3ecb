"""A cloned project may contain a forged journal of an interrupted board change: it touches no file outside the project."""

import json
from pathlib import Path
from typing import Any

import pytest

from remit import Board, Refused, Task, Unavailable
from remit.board import write_set
from remit.board.board import SET
from remit.board.write_set import hash_of

EVIL = b"evil\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "ours.txt").write_text("ours")
    add(project, "One", make=True)
    return project


def add(root: Path, title: str, *, make: bool = False) -> None:
    with Board(root).change("added", make=make) as draft:
        number = draft.state.next_number
        task = Task(number=number, title=title, slug=title.lower(), created=draft.at)
        draft.state = draft.state.with_tasks([*draft.state.tasks, task])


def plant(root: Path, **more: Any) -> None:
    step = {"path": "specs/x", "staged": "0", "new": hash_of(EVIL), "expected": None, "displaced_to": "", "kept_as": "kept"}
    entry = {"format": 1, "pieces": [step], "moves": []}
    for name, value in more.items():
        if name in step:
            step[name] = value
        else:
            entry[name] = value
    (root / SET / "0").write_bytes(EVIL)
    (root / SET / write_set.JOURNAL).write_text(json.dumps(entry))


@pytest.mark.parametrize(
    "more",
    [
        {"path": "../ours.txt"},
        {"path": "specs/../../ours.txt"},
        {"path": "{outside}/ours.txt"},
        {"path": "out/ours.txt"},
        {"path": "TODO-link"},
        {"displaced_to": "../ours.txt"},
        {"staged": "../../../../ours.txt"},
        {"kept_as": "../../ours.txt"},
        {"moves": [["../ours.txt", "specs/theirs.txt"]]},
        {"moves": [["out/ours.txt", "specs/theirs.txt"]]},
        {"moves": [["specs", "../specs"]]},
        {"path": ".git/config"},
        {"path": "repository/hooks/pre-commit"},
        {"path": ""},
        {"path": "a\0b"},
        {"path": "a\ud800b"},
    ],
)
def test_journal_with_paths_outside_the_project_is_refused(root: Path, more: dict[str, Any]) -> None:
    outside = root.parent
    (root / "out").symlink_to(outside)
    (root / "repository").symlink_to(".git")
    (root / "TODO-link").symlink_to(outside / "ours.txt")
    more = {name: value.format(outside=outside) if isinstance(value, str) else value for name, value in more.items()}
    plant(root, **more)
    before = sorted(path.name for path in outside.iterdir())
    for _ in range(2):
        with pytest.raises(Unavailable, match="journal") as refused:
            add(root, "Two")
        assert "move that folder away" in refused.value.advice
    assert (outside / "ours.txt").read_text() == "ours"
    assert sorted(path.name for path in outside.iterdir()) == before


@pytest.mark.parametrize(
    "entry",
    [
        {"format": 1},
        {"format": 1, "pieces": [1], "moves": []},
        {"format": 1, "pieces": [{"path": 1}], "moves": []},
        {"format": 1, "pieces": [], "moves": [["a"]]},
        {"format": 1, "pieces": [], "moves": 7},
        [1],
        "journal",
        None,
    ],
)
def test_malformed_journal_is_reported(root: Path, entry: Any) -> None:
    (root / SET / write_set.JOURNAL).write_text(json.dumps(entry))
    with pytest.raises(Unavailable, match="cannot be read"):
        add(root, "Two")


@pytest.mark.parametrize("place", [SET, str(Path(SET).parent)])
def test_state_folder_that_is_a_link_is_not_emptied(root: Path, place: str) -> None:
    for file in sorted((root / place).rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    (root / place).rmdir()
    theirs = root.parent / "files"
    (theirs / "set").mkdir(parents=True)
    (theirs / "file.txt").write_text("theirs")
    (theirs / "set" / "file.txt").write_text("theirs")
    (root / place).symlink_to(theirs)
    with pytest.raises(Refused, match="leads out of the project"):
        add(root, "Two")
    assert (theirs / "file.txt").read_text() == "theirs"
    assert (theirs / "set" / "file.txt").read_text() == "theirs"
