"""Any text is parsed as a diff or refused with a coded error, and found secrets are never shown."""

import contextlib
import tempfile
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from remit import RemitError
from remit.builtin.coder.review.change import ChangeSource, Files, State

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
            source = ChangeSource(Files(Path(folder), lambda paths: paths), time.monotonic() + 60)
            for file in source.from_text(text, "a diff").files:
                assert (file.state is State.FAILS) == bool(file.faults)
                if file.after is not None:
                    lines = file.after.split("\n")
                    assert all(lines[number - 1].rstrip("\r") == line for number, line in file.added.items())
        assert [path.name for path in Path(folder).iterdir()] == ["x"]
