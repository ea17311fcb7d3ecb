"""For any edits, the diff of a workspace applied to its base gives the workspace."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remit import new_session_id
from remit.runtime.workspaces import open_workspace, take_changes

NAMES = st.sampled_from(["a", "b.txt", "dir/a", "dir/deeper/c", "ä ö", 'quo"te', "tab\there", "-dash", "new\nline", "x.bin", "spaces in"])
CONTENTS = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from([b"", b"\n", b"one\ntwo\n", b"one\r\ntwo\r\n", b"no newline", b"\0", b"one\ntwo\nthree\n" * 30]),
)
EDITS = st.lists(st.tuples(NAMES, st.one_of(st.none(), CONTENTS, st.just("link"), st.just("executable"))), max_size=8)
FILES = st.dictionaries(NAMES, CONTENTS, min_size=1, max_size=6)


def git(folder: Path, *arguments: str) -> None:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "core.hooksPath=/dev/null", *arguments]
    ran = subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr


def put(folder: Path, name: str, what: object) -> None:
    path = folder / name
    if any(parent.is_file() or parent.is_symlink() for parent in path.parents if parent != folder and folder in parent.parents):
        return
    if path.is_dir() and not path.is_symlink():
        return
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(what, bytes):
        path.write_bytes(what)
    elif what == "link":
        path.symlink_to("a")
    elif what == "executable":
        path.write_bytes(b"#!/bin/sh\n")
        path.chmod(0o755)


def contents(folder: Path) -> dict[str, tuple[object, bool]]:
    found: dict[str, tuple[object, bool]] = {}
    for path in folder.rglob("*"):
        inside = path.relative_to(folder)
        if inside.parts[0] not in (".git", ".remit") and (path.is_symlink() or not path.is_dir()):
            is_program = not path.is_symlink() and bool(path.stat().st_mode & 0o100)
            found[inside.as_posix()] = (os.readlink(path) if path.is_symlink() else path.read_bytes(), is_program)
    return found


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(files=FILES, edits=EDITS)
def test_diff_applied_to_the_base_gives_the_workspace(files: dict[str, bytes], edits: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as made:
        root, base = Path(made, "project").resolve(), Path(made, "base")
        root.mkdir()
        git(root, "init", "-q")
        for name, content in files.items():
            put(root, name, content)
        git(root, "add", "-A")
        git(root, "commit", "-q", "--allow-empty", "-m", "first")
        shutil.copytree(root, base, symlinks=True)
        workspace, _ = open_workspace(root, new_session_id(), earlier=None, seconds=60)
        for name, what in edits:
            put(workspace.folder, name, what)
        changes = take_changes(workspace, message="edits", diff_in=Path(made))
        if changes.diff is None:
            assert contents(workspace.folder) == contents(base)
        else:
            git(base, "apply", "--whitespace=nowarn", str(changes.diff))
        assert contents(base) == contents(workspace.folder)
        git(base, "fetch", "-q", str(root), changes.commit)
        git(base, "add", "-A")
        git(base, "diff", "--cached", "--quiet", "FETCH_HEAD")
