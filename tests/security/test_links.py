"""Symlinks in a clone cannot redirect remit's writes out of the project."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from remit import Board, Context, Refused, Remit, Return, agent
from remit.system.trust import create_approved
from support import cli
from support.folders import dig, removed_at_the_end
from support.repository import all_committed, begin

FOLDERS = (
    ".remit/scratch",
    ".remit/work",
    ".remit/work/.books",
    ".remit/run",
    ".remit/board",
    ".remit/board/left",
    ".remit/conversations",
    "specs",
)
FILES = (
    ".remit/errors.json",
    ".remit/audit.jsonl",
    ".remit/errors.json.lock",
    "specs/TODO.md",
    "specs/state.json",
    "specs/archive/state.json",
)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/profile").write_text("alias ll=ls\n")
    return tmp_path / "home"


def clone(root: Path, link: str, target: Path) -> Path:
    """A project with a board in which one file or folder is a symlink."""
    root.mkdir()
    begin(root)
    with Board(root).change(make=True):
        pass
    place = root / link
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)
    return root


@pytest.mark.parametrize("link", [*FOLDERS, *FILES])
def test_symlinks_in_a_clone_are_not_written_through(tmp_path: Path, outside: Path, link: str) -> None:
    target = outside / "profile" if link in FILES else outside
    root = clone(tmp_path / "clone", link, target)
    done = [
        cli.run("delegate", "worker.write_file", "path=a.txt", "content=a", cwd=root),
        cli.run("delegate", "nobody", cwd=root),
        cli.run("task", "Write a letter", cwd=root),
        cli.run("todo", cwd=root),
    ]
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("profile", "alias ll=ls\n")]
    if link.startswith(".remit"):
        assert {one.code for one in done[:2]} != {0}
        assert f"{link} leads out of the project" in done[0].stdout + done[0].stderr
        assert "Remove the link" in done[0].stdout + done[0].stderr


@pytest.mark.parametrize("link", ["remit.toml", "pyproject.toml", ".remit", ".remit/remit.db", ".remit/scratch"])
def test_long_chain_of_links_in_a_clone_is_an_error_with_advice(tmp_path: Path, link: str) -> None:
    """Resolving its names one by one exceeds the depth of recursion."""
    (tmp_path / "chain").mkdir()
    for number in range(1500):
        (tmp_path / f"chain/{number}").symlink_to(str(number + 1))
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to(tmp_path / "chain/0")
    done = cli.run("delegate", "worker.list_files", cwd=tmp_path)
    assert done.code not in (0, 70), done
    assert done.stderr.startswith("Error: "), done


@pytest.mark.parametrize("content", ["deep", "endless"])
def test_hostile_note_of_a_workspace_in_a_clone_is_ignored(tmp_path: Path, content: str) -> None:
    note = tmp_path / ".remit/work/.books/sess_1700000000_abc123/note.json"
    note.parent.mkdir(parents=True)
    if content == "deep":
        note.write_text("[" * 200_000)
    else:
        note.symlink_to("/dev/zero")
    assert cli.run("workspaces", cwd=tmp_path).code == 0


@pytest.mark.parametrize("folder", [".claude/agents", ".remit/context"])
async def test_deep_folder_in_a_clone_breaks_nothing(tmp_path: Path, folder: str) -> None:
    """The library's walks descend by recursion."""
    (tmp_path / folder).mkdir(parents=True)
    with removed_at_the_end(tmp_path / folder):
        os.close(dig(tmp_path / folder, 1500))
        async with Remit.open(tmp_path, agents=[reader]) as remit:
            assert (await remit.delegate("reader", task={"title": "All", "complexity": "complex"})).ok


def test_symlinks_inside_the_project_and_to_shared_agents_keep_working(tmp_path: Path, outside: Path) -> None:
    root = clone(tmp_path / "clone", ".remit/scratch", tmp_path / "clone/big")
    (root / "big").mkdir()
    (root / ".remit/agents").symlink_to(outside)
    done = cli.run("delegate", "worker.write_file", "path=a.txt", "content=a", cwd=root)
    assert done.code == 0, done


@agent("reader")
async def reader(ctx: Context) -> str:
    return ctx.background().text


async def test_context_files_of_a_clone_exclude_files_outside_the_project(tmp_path: Path, outside: Path) -> None:
    (outside / "common").mkdir()
    (outside / "common/notes.md").write_text("the private notes")
    root = clone(tmp_path / "clone", ".remit/context", outside)
    async with Remit.open(root, agents=[reader]) as remit:
        assert (await remit.delegate("reader")).data == ""
    (root / ".remit/context").unlink()
    (root / ".remit/context").symlink_to("../docs")
    (root / "docs/common").mkdir(parents=True)
    (root / "docs/common/style.md").write_text("plain words")
    async with Remit.open(root, agents=[reader]) as remit:
        assert "plain words" in (await remit.delegate("reader")).data


def test_new_files_of_a_project_are_not_written_through_a_link_that_leads_out(tmp_path: Path) -> None:
    outside, project = tmp_path / "outside", tmp_path / "project"
    outside.mkdir()
    (project / ".remit").mkdir(parents=True)
    (project / ".remit/agents").symlink_to(outside)
    with pytest.raises(Refused, match="leads out of the project"):
        create_approved(project, project / ".remit/agents/deep/mine.md", b"text")
    assert list(outside.iterdir()) == []
    (project / "kept.md").write_bytes(b"kept")
    with pytest.raises(FileExistsError):
        create_approved(project, project / "kept.md", b"other")
    assert [path.name for path in project.iterdir() if path.is_file()] == ["kept.md"]
    assert (project / "kept.md").read_bytes() == b"kept"


@pytest.mark.parametrize("key", ["copy", "link"])
def test_files_shared_with_a_worktree_stay_in_it(tmp_path: Path, outside: Path, key: str) -> None:
    """An agent commits a link in place of a folder; acceptance then gets a worktree of that commit, with the shared file."""
    root = tmp_path / "project"
    (root / "conf/local").mkdir(parents=True)
    (root / "conf/local/key").write_text("secret")
    (root / "conf/readme").write_text("conf\n")
    (root / ".gitignore").write_text(".remit/\nconf/local/\n")
    all_committed(root)

    @agent("linking", workspace="worktree", merge="queue")
    async def linking(ctx: Context) -> str:
        shutil.rmtree(ctx.workspace / "conf")
        (ctx.workspace / "conf").symlink_to(outside)
        return "done"

    async def work() -> Return:
        settings = {"workspace": {key: ["conf/local/key"], "accept": ["true"]}}
        async with Remit.open(root, agents=[linking], settings=settings) as remit:
            return await remit.delegate("linking")

    done = asyncio.run(work())
    assert not done.ok, done
    assert done.errors[0].code == "MERGE_WAITING", done
    assert "leads out of the project" in done.errors[0].message
    assert [path.name for path in outside.iterdir()] == ["profile"]
