"""For any working tree and index, a commit contains exactly the named paths and changes nothing else."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from remit.board.commits import commit

NAMES = ("a", "b.txt", "d/a", "d/-x y", "ü/*", "e/f/g", "h")
KINDS = ("untouched", "changed", "staged", "staged and changed", "deleted", "staged deleted", "taken out of the index", "made executable")
NEW_KINDS = ("absent", "new", "new staged", "new staged and changed", "new staged and deleted")


@contextmanager
def clean_repository() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        git(Path(folder), "init", "-q")
        git(Path(folder), "config", "user.name", "Ada")
        git(Path(folder), "config", "user.email", "ada@example.com")
        yield Path(folder)


def git(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_LITERAL_PATHSPECS": "1"}
    return subprocess.run(["git", *arguments], cwd=folder, env=environment, capture_output=True, check=True).stdout.decode()


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def disturb(root: Path, name: str, kind: str) -> None:
    if "new" in kind or kind in ("changed", "staged", "staged and changed"):
        write(root / name, f"{name} one\n")
    if kind == "made executable":
        (root / name).chmod(0o755)
    if "staged" in kind and kind != "staged deleted":
        git(root, "add", "--", name)
    if kind.endswith("and changed"):
        write(root / name, f"{name} two\n")
    if kind in ("deleted", "new staged and deleted"):
        (root / name).unlink()
    if kind in ("staged deleted", "taken out of the index"):
        git(root, "rm", "-q", *(["--cached"] if "index" in kind else []), "--", name)


def entries(text: str, separator: str = "\t") -> dict[str, str]:
    return {name: entry for entry, _, name in (one.partition(separator) for one in text.split("\0") if one)}


def without(found: dict[str, str], named: set[str]) -> dict[str, str]:
    return {name: entry for name, entry in found.items() if name not in named}


def working(root: Path) -> dict[str, tuple[str, bool]]:
    return {name: ((root / name).read_text(), os.access(root / name, os.X_OK)) for name in NAMES if (root / name).exists()}


@given(data=st.data())
@settings(max_examples=20)
def test_commit_changes_exactly_the_named_paths(data: st.DataObject) -> None:
    tracked = data.draw(st.sets(st.sampled_from(NAMES)))
    with clean_repository() as root:
        write(root / "first", "")
        for name in tracked:
            write(root / name, f"{name}\n")
        git(root, "add", "--", "first", *tracked)
        git(root, "commit", "-qm", "start")
        for name in NAMES:
            disturb(root, name, data.draw(st.sampled_from(KINDS if name in tracked else NEW_KINDS), label=name))
        named = data.draw(st.sets(st.sampled_from(NAMES)), label="named")
        head, index, files = entries(git(root, "ls-tree", "-rz", "HEAD")), entries(git(root, "ls-files", "-sz")), working(root)

        done = commit(root, sorted(named), "task 1: x", deleted=sorted(named))

        assert done.warning == ""
        assert working(root) == files
        new_head, new_index = entries(git(root, "ls-tree", "-rz", "HEAD")), entries(git(root, "ls-files", "-sz"))
        differing = {name for name in {*head, *files} - {"first"} if head.get(name) != new_head.get(name)}
        assert differing <= named
        assert bool(done.hash) == bool(differing)
        assert without(index, named) == without(new_index, named)
        for name in named:
            held = git(root, "cat-file", "blob", f"HEAD:{name}") if name in new_head else None
            assert held == (files[name][0] if name in files else None)
            assert name not in new_head or new_head[name].startswith("100755") == files[name][1]
            if name in differing and name in new_head:
                mode, _, blob = new_head[name].split(" ")
                assert new_index[name] == f"{mode} {blob} 0"
            assert name not in differing or (name in new_index) == (name in new_head)
