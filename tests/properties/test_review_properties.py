"""Whatever is given as a diff, only coded errors come of it; and what applies is what `git apply --check` says applies."""

import contextlib
import subprocess
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remit.agents.builtin.coder.review.applying import State, apply
from remit.agents.builtin.coder.review.patch import read_diff
from remit.agents.builtin.coder.review.secrets import Masking
from remit.agents.builtin.coder.review.tree import read_below
from remit.core.errors import RemitError

PARTS = st.sampled_from(
    r"""diff --git a/x b/x|--- a/x|+++ b/x|--- /dev/null|+++ /dev/null|@@ -1,2 +1,3 @@|@@ -0,0 +1 @@|@@ -1 +0,0 @@| a|+b|-a|
|\ No newline at end of file|rename from x|rename to y|new file mode 100644|copy from |deleted file mode 100644|GIT binary patch
|diff --git "a/\303\274" "b/\303\274"|+++ "b/\9"|Binary files a/x and b/y differ|-- |+++ b/../../x|--- a/../../x
|@@ -99999999999 +1 @@|\r""".replace("\n", "").split("|")
).map(lambda line: line + "\n")
LINES = st.lists(st.sampled_from(["a\n", "b\n", "aa\n", "\n", "c\n", "a\r\n"]), max_size=9)


@given(st.lists(PARTS | st.text(max_size=20), max_size=25).map("".join))
@settings(max_examples=300, deadline=None)
def test_any_text_is_a_diff_or_a_coded_error(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "x").write_text("a\na\n")
        with contextlib.suppress(RemitError):
            for one in apply(read_diff(text), lambda path: read_below(Path(folder), path)):
                assert one.after is None or one.state is not State.FAILS
                assert (one.state is State.FAILS) == bool(one.faults)
                if one.after is not None:
                    lines = one.after.split("\n")
                    assert all(lines[number - 1].rstrip("\r") == line.rstrip("\r") for number, line in one.added.items())


@given(before=LINES, after=LINES, standing=LINES, context=st.integers(1, 3))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_applies_is_what_git_says_applies(before: list[str], after: list[str], standing: list[str], context: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "x").write_bytes("".join(before).encode())
        (folder / "y").write_bytes("".join(after).encode())
        said = subprocess.run(["git", "diff", "--no-index", f"-U{context}", "x", "y"], cwd=folder, capture_output=True, check=False).stdout
        diff = said.decode().replace("b/y", "b/x")
        if not diff:
            return
        for text in (before, standing):
            (folder / "x").write_bytes("".join(text).encode())
            command = ["git", "apply", "--unsafe-paths", "--directory", name, "-"]
            ours = apply(read_diff(diff), lambda path: read_below(folder, path))[0]
            check = subprocess.run([*command, "--check"], cwd="/", input=diff.encode(), capture_output=True, check=False)
            assert (check.returncode == 0) == (ours.state is State.APPLIES), (check.stderr, ours)
            if ours.state is State.APPLIES:
                subprocess.run(command, cwd="/", input=diff.encode(), check=True, capture_output=True)
                assert (folder / "x").read_bytes().decode() == ours.after


@given(st.text(alphabet="aZ09_-'\"=:@/. \n", max_size=200), st.sampled_from(["token", "password", "api_key", "secret"]))
@settings(max_examples=200, deadline=None)
def test_what_was_learnt_as_secret_is_never_shown(noise: str, name: str) -> None:
    value = "q7" + "Wm3Zr8Kt5Xv1Lp9Nd4"
    masking = Masking()
    masking.learn(f"{name} = '{value}'")
    assert value not in masking.strike(f"{noise}{value}{noise}")
