"""`coder.review_code` as a delegation: against real repositories, with a report, changing nothing (issue 4, item 5)."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from workspace_project import commit_all, git, new_repository, status

from remit import Remit, Return, Status

TOKEN = "gh" + "p_" + "Z9y8X7w6V5u4T3s2R1q0" * 2
CHANGE = """\
diff --git a/src/a.py b/src/a.py
--- a/src/a.py
+++ b/src/a.py
@@ -1,3 +1,6 @@
 one = 1
 two = 2
+import os
+
+os.system(input())
 three = 3
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return new_repository(tmp_path / "project")


async def review(where: Any, diff: str, guidelines: Any = None, **asked: Any) -> Return:
    if not isinstance(where, Remit):
        async with Remit.open(where) as remit:
            return await review(remit, diff, guidelines, **asked)
    parameters = {"diff": diff} if guidelines is None else {"diff": diff, "guidelines": guidelines}
    return await where.delegate("coder.review_code", parameters=parameters, **asked)


async def test_a_diff_is_reviewed_and_the_report_is_worth_reading(project: Path) -> None:
    result = await review(project, CHANGE, ["security-first", "no shell commands"])
    assert result.status is Status.COMPLETED, result
    assert result.data["applies"] == "applies"
    assert result.data["verdict"] == "needs changes"
    first = result.data["findings"][0]
    assert (first["file"], first["line"], first["severity"], first["rule"]) == ("src/a.py", 5, "high", "shell")
    assert first["suggestion"]
    assert "data.verdict" in result.next_steps
    assert "ruff" in result.data["tools"]
    assert result.warnings == ()
    (artifact,) = result.artifacts
    assert (artifact.type, Path(artifact.path).name) == ("report", "review.md")
    page = (project / artifact.path).read_text()
    assert page.startswith("# Review: needs changes\n")
    assert "`src/a.py:5`" in page
    assert "`os.system(input())`" in page
    assert page.index("`os.system(input())`") < page.index("<!-- more -->") < page.index("## What was checked")
    assert status(project) == ""


async def test_what_does_not_apply_says_why(project: Path) -> None:
    (project / "src" / "a.py").write_text("one = 1\ntwo = zwei\nthree = 3\n")
    result = await review(project, CHANGE)
    assert result.data["verdict"] == "does not apply"
    assert "line 2 is `two = zwei`, the diff expects `two = 2`" in result.data["findings"][0]["message"]


@pytest.fixture
async def remit(project: Path) -> AsyncIterator[Remit]:
    async with Remit.open(project) as opened:
        yield opened


async def test_git_knows_what_is_staged_working_and_committed(project: Path, remit: Remit) -> None:
    (project / "src" / "a.py").write_text("one = 1\ntwo = eval('2')\nthree = eval(input())\n")
    (project / "src" / "new file.py").write_text("four = eval(input())\n")
    assert (await review(remit, "staged")).data["verdict"] == "nothing to review"
    working = await review(remit, "working")
    assert {(one["file"], one["line"]) for one in working.data["findings"] if one["rule"] == "eval"} == {
        ("src/a.py", 3),
        ("src/new file.py", 1),
    }
    git(project, "add", "src/a.py")
    assert (await review(remit, "staged")).data["filesChanged"] == 1
    commit_all(project, "second")
    for asked in ("HEAD", "HEAD~1..HEAD", "HEAD~1...HEAD", git(project, "rev-parse", "HEAD").strip()):
        result = await review(remit, asked)
        assert (result.data["filesChanged"], result.data["verdict"]) == (2, "needs changes"), asked
    assert (await review(remit, "HEAD~1")).data["filesChanged"] == 4  # the first commit, all of it
    git(project, "rm", "-q", "src/a.py")
    assert (await review(remit, "HEAD")).data["filesChanged"] == 2  # as it was then, not as it stands now


async def test_a_patch_file_of_the_workspace_is_read(project: Path, remit: Remit) -> None:
    (project / "my.patch").write_text(CHANGE)
    assert (await review(remit, "@my.patch")).data["verdict"] == "needs changes"
    for diff in ("@none.patch", "@../x", "nonsense", "HEAD~99", "--output=x", "HEAD..--output=x"):
        result = await review(remit, diff)
        assert (result.status, result.errors[0].code) == (Status.FAILED, "INVALID_PARAMETERS"), result
    assert not (project / "x").exists()


async def test_settings_of_the_repository_run_nothing(project: Path) -> None:
    """A clone's own configuration must not run in our git: filters, external diffs, text conversion, file system monitors."""
    (project / ".gitattributes").write_text("*.py diff=evil filter=evil\n")
    evil = project / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {project}/ran\ncat\n")
    evil.chmod(0o755)
    for name in (
        "diff.evil.command",
        "diff.evil.textconv",
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "core.fsmonitor",
        "diff.external",
    ):
        git(project, "config", name, str(evil))
    (project / "src" / "a.py").write_text("one = eval(input())\n")
    result = await review(project, "working")
    assert result.data["verdict"] == "needs changes"
    await review(project, "HEAD")
    assert not (project / "ran").exists()


async def test_a_secret_of_the_diff_stands_nowhere_in_what_is_kept(project: Path) -> None:
    result = await review(project, CHANGE.replace("os.system(input())", f"key = '{TOKEN}'"))
    assert result.data["findings"][0]["rule"] == "secret"
    assert TOKEN not in str(result)
    kept = [path for path in (project / ".remit").rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert kept == []


async def test_a_review_that_runs_out_of_time_hands_in_what_it_has(project: Path) -> None:
    """S2.4: at its soft deadline it hands in; what is missing is named."""
    names = "".join(f"--- /dev/null\n+++ b/f{n}.py\n@@ -0,0 +1,2 @@\n+import os\n+eval(os)\n" for n in range(3000))
    result = await review(project, names, timeout=4)
    assert result.status is Status.PARTIAL, result.summary
    assert result.errors[0].code == "TIMEOUT"
    assert any("time was up" in words for words in result.data["notChecked"])


async def test_files_that_the_policy_closes_are_not_read(project: Path) -> None:
    (project / ".env").write_text("A=" + "very-own-value-7\n")
    result = await review(project, "--- a/.env\n+++ b/.env\n@@ -1 +1 @@\n-A=x\n+A=y\n")
    assert (result.data["applies"], result.data["verdict"]) == ("not checked", "worth a look")
    page = (project / result.artifacts[0].path).read_text()
    assert "the policy does not let it be read" in page
    assert "very-own-value" not in page


async def test_a_file_that_cannot_be_read_is_pointed_at_where_it_is_wrong_and_named_as_unchecked(project: Path) -> None:
    (project / "broken.py").write_text("import hashlib\n\n\ndef f(x):\n    return hashlib.md5(x)\n\n\ndef g(\n")
    result = await review(project, "working")
    syntax = next(one for one in result.data["findings"] if one["rule"] == "syntax")
    assert (syntax["file"], syntax["line"], syntax["snippet"]) == ("broken.py", 8, "def g(")
    assert any(one.startswith("risky calls in broken.py: it cannot be read as Python") for one in result.data["notChecked"])


async def test_names_with_underscores_stay_themselves_in_the_summary(project: Path) -> None:
    result = await review(project, CHANGE.replace("os.system(input())", f"MY_API_TOKEN = '{TOKEN}'"))
    assert "MY_API_TOKEN" in result.summary or "MY_API_TOKEN" not in result.data["findings"][0]["message"]
    assert "*" not in result.summary
