"""Reading a unified diff, and whether it applies: names, kinds of change, line ends, and what is said where it does not."""

from pathlib import Path

import pytest
from reviewed_change import applied, diff_of, git, write

from remit.agents.builtin.coder.review.applying import State
from remit.agents.builtin.coder.review.patch import read_diff
from remit.core.errors import Misused


@pytest.mark.parametrize("name", ["plain.py", "with space.py", "tab\there", 'quote"d.py', "ünïcode.py", "x b/y.py", "back\\slash"])
def test_names_are_read_as_git_writes_them(tmp_path: Path, name: str) -> None:
    change = read_diff(diff_of(tmp_path, {name: "a\n"}, {name: "b\n"}))[0]
    assert (change.old_path, change.new_path) == (name, name)


def test_renames_modes_new_and_removed_files_are_told_apart(tmp_path: Path) -> None:
    body = "".join(f"line {number}\n" for number in range(20))
    text = diff_of(tmp_path, {"old.txt": body, "gone.txt": "x\n"}, {"new name.txt": body + "more\n", "made.sh": "echo\n"})
    changes = {change.path: change for change in read_diff(text)}
    assert (changes["new name.txt"].old_path, changes["new name.txt"].moved) == ("old.txt", "renamed")
    assert changes["gone.txt"].new_path is None
    assert (changes["made.sh"].old_path, changes["made.sh"].new_mode) == (None, "100644")
    assert {one.state for one in applied(tmp_path, text)} == {State.APPLIES}
    mode = read_diff("diff --git a/x.sh b/x.sh\nold mode 100644\nnew mode 100755\n")[0]
    assert (mode.path, mode.old_mode, mode.new_mode) == ("x.sh", "100644", "100755")


def test_a_plain_diff_needs_no_git_headers(tmp_path: Path) -> None:
    write(tmp_path, {"src/x.py": "a\nb\n"})
    for old, new in (
        ("old/src/x.py", "new/src/x.py"),
        ("src/x.py.orig", "src/x.py"),
        ("a/src/x.py", "b/src/x.py"),
        ("src/x.py", "src/x.py"),
    ):
        text = f"--- {old}\t2026-01-01 00:00:00\n+++ {new}\t2026-01-02 00:00:00\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
        one = applied(tmp_path, text)[0]
        assert (one.path, one.state, one.after) == ("src/x.py", State.APPLIES, "a\nc\n")


def test_windows_line_ends_and_a_missing_last_one_are_kept(tmp_path: Path) -> None:
    text = diff_of(tmp_path, {"x": "a\r\nb"}, {"x": "a\r\nc\r\n"})
    assert applied(tmp_path, text)[0].after == "a\r\nc\r\n"
    write(tmp_path, {"x": "a\nb\n"})
    one = applied(tmp_path, "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n")[0]
    assert one.state is State.FAILS
    assert "only the line end differs" in one.faults[0].message


def test_headers_with_windows_line_ends_are_read(tmp_path: Path) -> None:
    write(tmp_path, {"x": "a\r\nb\r\n"})
    one = applied(tmp_path, "diff --git a/x b/x\r\n--- a/x\r\n+++ b/x\r\n@@ -1,2 +1,2 @@\r\n a\r\n-b\r\n+c\r\n")[0]
    assert (one.path, one.state, one.after) == ("x", State.APPLIES, "a\r\nc\r\n")


def test_what_does_not_apply_says_where_and_what_stands_there(tmp_path: Path) -> None:
    write(tmp_path, {"x.py": "one\ntwo\nthree\nfour\n"})
    one = applied(tmp_path, "--- a/x.py\n+++ b/x.py\n@@ -1,3 +1,3 @@\n one\n-2\n+zwei\n three\n@@ -4 +4 @@\n-four\n+4\n")[0]
    assert one.state is State.FAILS
    assert len(one.faults) == 1
    assert one.faults[0].line == 2
    assert "hunk 1 of 2 (line 3 of the diff) does not match: line 2 is `two`, the diff expects `2`" in one.faults[0].message


def test_a_hunk_with_wrong_counts_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    write(tmp_path, {"x.py": "one\ntwo\n", "y.py": "one\n"})
    wrong = "--- a/x.py\n+++ b/x.py\n@@ -1,9 +1,9 @@\n one\n+more\n two\n"
    right = "diff --git a/y.py b/y.py\n--- a/y.py\n+++ b/y.py\n@@ -1 +1 @@\n-one\n+1\n"
    first, second = applied(tmp_path, wrong + right)
    assert "its header says 9 lines before and 9 after, but there are 2 and 3" in first.faults[0].message
    assert first.added == {2: "more"}
    assert second.state is State.APPLIES


def test_a_change_that_is_there_already_is_recognised(tmp_path: Path) -> None:
    text = diff_of(tmp_path, {"x.py": "a\nb\nc\n", "gone": "x\n"}, {"x.py": "a\nB\nc\n", "made": "m\n"})
    write(tmp_path, {"x.py": "a\nB\nc\n", "made": "m\n"})
    (tmp_path / "gone").unlink()
    results = {one.path: one for one in applied(tmp_path, text)}
    assert {one.state for one in results.values()} == {State.APPLIED}
    assert results["x.py"].added == {2: "B"}
    assert results["x.py"].before == "a\nb\nc\n"


def test_a_series_of_commits_that_touches_a_file_twice_is_taken_in_order(tmp_path: Path) -> None:
    first = diff_of(tmp_path, {"x": "a\nb\n"}, {"x": "a\nB\n"})
    second = "diff --git a/x b/y\nsimilarity index 50%\nrename from x\nrename to y\n--- a/x\n+++ b/y\n@@ -1,2 +1,3 @@\n a\n B\n+c\n"
    one = {result.path: result for result in applied(tmp_path, first + second)}["y"]
    assert (one.after, one.added) == ("a\nB\nc\n", {2: "B", 3: "c"})


def test_a_diff_without_context_stands_where_its_numbers_say(tmp_path: Path) -> None:
    write(tmp_path, {"x": "a\na\na\n"})
    assert applied(tmp_path, "--- a/x\n+++ b/x\n@@ -1,0 +2 @@\n+new\n")[0].after == "a\nnew\na\na\n"


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", ".git/config", "sub/.GIT/hooks/x", "C:/x"])
def test_paths_that_lead_out_are_refused(tmp_path: Path, path: str) -> None:
    one = applied(tmp_path, f"--- {path}\n+++ {path}\n@@ -1 +1 @@\n-a\n+b\n")[0]
    assert one.state is State.FAILS
    assert one.faults[0].leads_out


def test_links_are_not_followed_and_devices_not_opened(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/etc")
    (tmp_path / "leaf").symlink_to("/etc/passwd")
    for path in ("out/passwd", "leaf"):
        one = applied(tmp_path, f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-a\n+b\n")[0]
        assert one.state is State.FAILS
        assert "link" in one.faults[0].message
        assert "root:" not in one.faults[0].message


def test_binary_files_links_and_submodules_are_named_as_not_checked(tmp_path: Path) -> None:
    binary = "diff --git a/x.png b/x.png\nindex 1..2 100644\nGIT binary patch\nliteral 3\nKcmZQzWMT#Y01f~L\n\n"
    link = "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n"
    module = "diff --git a/m b/m\nindex 1..2 160000\n--- a/m\n+++ b/m\n@@ -1 +1 @@\n-Subproject commit 1\n+Subproject commit 2\n"
    assert [one.note for one in applied(tmp_path, binary + link + module)] == ["it is binary", "it is a symbolic link", "it is a submodule"]


@pytest.mark.parametrize(
    "text", ["", "hello\nworld\n", "@@ -1 +1 @@\n-a\n+b\n", "--- a\n", "diff --cc x\n--- a/x\n+++ b/x\n@@@ -1 -1 +1 @@@\n"]
)
def test_what_is_no_diff_is_said_to_be_none(text: str) -> None:
    with pytest.raises(Misused) as caught:
        read_diff(text)
    assert caught.value.code == "INVALID_PARAMETERS"


def test_a_mailed_patch_is_read_around_its_letter(tmp_path: Path) -> None:
    diff_of(tmp_path, {"x": "a\n"}, {"x": "a\n"})
    write(tmp_path, {"x": "a\n-- b\n"})
    git(tmp_path, "commit", "-qam", "Two\n\n--- not a header\n")
    letter = git(tmp_path, "format-patch", "-1", "--stdout")
    one = applied(tmp_path, letter)[0]
    assert (one.state, one.added, one.faults) == (State.APPLIED, {2: "-- b"}, [])
