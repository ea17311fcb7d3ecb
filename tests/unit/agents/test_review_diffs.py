"""Parsing unified diffs and applying them: names, kinds of change, line endings, and errors."""

import contextlib
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reviewed_change import diff_of, new_file, parse_changes, source, write

from remit import Misused, RemitError
from remit.builtin.coder.review.change import State

NAMES = ["plain.py", "with space.py", 'quote"d.py', '"q\\"', "ünïcode.py", "x b/y.py", "back\\slash"]


def test_names_are_parsed_as_git_writes_them(tmp_path: Path) -> None:
    text = diff_of(tmp_path, dict.fromkeys(NAMES, "a\n"), dict.fromkeys(NAMES, "b\n"))
    found = {file.path: (file.state, file.before, file.after) for file in parse_changes(tmp_path, text)}
    assert found == dict.fromkeys(NAMES, (State.APPLIES, "a\n", "b\n"))


def test_renames_new_and_removed_files_are_distinguished(tmp_path: Path) -> None:
    body = "".join(f"line {number}\n" for number in range(20))
    text = diff_of(tmp_path, {"ö old.txt": body, "gone.txt": "x\n"}, {"new name.txt": body + "more\n", "made.sh": "echo\n"})
    files = {file.path: file for file in parse_changes(tmp_path, text)}
    assert {file.state for file in files.values()} == {State.APPLIES}
    assert (files["new name.txt"].before, files["new name.txt"].added) == (body, {21: "more"})
    assert files["gone.txt"].is_gone
    assert files["made.sh"].is_new


@pytest.mark.parametrize(("old", "new"), [("x.py", "x.py"), ("x.py", "x.py.new"), ("was/x.py", "is/x.py"), ("x.py.orig", "x.py")])
def test_diffs_of_other_programs_are_applied(tmp_path: Path, old: str, new: str) -> None:
    write(tmp_path, {"x.py": "a\n"})
    (file,) = parse_changes(tmp_path, f"--- {old}\t2024-01-01\n+++ {new}\t2024-01-02\n@@ -1 +1 @@\n-a\n+b\n")
    assert (file.path, file.state, file.after) == ("x.py", State.APPLIES, "b\n")


def test_diff_that_does_not_apply_names_the_place(tmp_path: Path) -> None:
    write(tmp_path, {"x.py": "one\ntwo\nthree\nfour\n", "there.py": "x = 1\n"})
    hunks = "@@ -1,3 +1,3 @@\n one\n-2\n+zwei\n three\n@@ -4 +4 @@\n-four\n+4\n"
    missing = "--- a/gone.py\n+++ b/gone.py\n@@ -1 +1 @@\n-a\n+b\n"
    first, second, third = parse_changes(tmp_path, f"--- a/x.py\n+++ b/x.py\n{hunks}" + missing + new_file("there.py", "y = 1"))
    assert {file.state for file in (first, second, third)} == {State.FAILS}
    assert (first.faults[0].line, "hunk at line 1 does not match" in first.faults[0].message) == (1, True)
    assert "gone.py" in second.faults[0].message
    assert "already exists" in third.faults[0].message


def test_hunk_with_wrong_counts_is_reported_and_the_rest_is_parsed(tmp_path: Path) -> None:
    write(tmp_path, {"x.py": "one\ntwo\n", "y.py": "one\n"})
    wrong = "--- a/x.py\n+++ b/x.py\n@@ -1,9 +1,9 @@\n one\n+more\n two\n"
    right = "diff --git a/y.py b/y.py\n--- a/y.py\n+++ b/y.py\n@@ -1 +1 @@\n-one\n+1\n"
    first, second = parse_changes(tmp_path, wrong + right)
    assert "orrupt patch at line" in first.faults[0].message
    assert first.added == {2: "more"}
    assert second.state is State.APPLIES


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", ".git/config", "sub/.GIT/hooks/x", "C:/x"])
def test_paths_out_of_the_project_are_refused(tmp_path: Path, path: str) -> None:
    write(tmp_path, {"ok.py": "a\n"})
    good = "--- a/ok.py\n+++ b/ok.py\n@@ -1 +1 @@\n-a\n+b\n"
    old, new = (path, path) if path in ("/etc/passwd", "C:/x") else (f"a/{path}", f"b/{path}")
    results = parse_changes(tmp_path, f"--- {old}\n+++ {new}\n@@ -1 +1 @@\n-a\n+b\n{good}")
    assert [file.state for file in results] == [State.FAILS, State.APPLIES]
    assert results[0].faults[0].leads_out


def test_links_are_not_followed_and_pipes_not_opened(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "leaf").symlink_to("/etc/passwd")
    (tmp_path / "inside").symlink_to(".git")
    os.mkfifo(tmp_path / "pipe")
    for path in ("out/passwd", "leaf", "inside/config", "pipe"):
        (file,) = parse_changes(tmp_path, f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n")
        assert file.state is State.FAILS, path
        assert "root:" not in file.faults[0].message


@pytest.mark.parametrize("text", ["", "hello\nworld\n", "@@ -1 +1 @@\n-a\n+b\n", "--- a\n"])
def test_text_that_is_not_a_diff_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(Misused) as caught:
        source(tmp_path).from_text(text, "a diff")
    assert caught.value.code == "INVALID_PARAMETERS"


PARTS = st.sampled_from(
    r"""diff --git a/x b/x|--- a/x|+++ b/x|--- /dev/null|+++ /dev/null|@@ -1,2 +1,3 @@|@@ -0,0 +1 @@|@@ -1 +0,0 @@| a|+b|-a|
|\ No newline at end of file|rename from x|rename to y|new file mode 100644|copy from |deleted file mode 100644|GIT binary patch
|diff --git "a/\303\274" "b/\303\274"|+++ "b/\9"|Binary files a/x and b/y differ|-- |+++ b/../../x|--- a/../../x
|@@ -99999999999 +1 @@|\r""".replace("\n", "").split("|")
).map(lambda line: line + "\n")


@given(st.lists(PARTS | st.text(max_size=20), max_size=25).map("".join))
def test_any_text_is_a_diff_or_a_coded_error(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "x").write_text("a\na\n")
        with contextlib.suppress(RemitError):
            for file in parse_changes(Path(folder), text):
                assert (file.state is State.FAILS) == bool(file.faults)
                if file.after is not None:
                    lines = file.after.split("\n")
                    assert all(lines[number - 1].rstrip("\r") == line for number, line in file.added.items())
        assert [path.name for path in Path(folder).iterdir()] == ["x"]
