"""`coder.review_code` on real repositories, with and without a model."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from scripted_coder import run_operation
from workspace_project import commit_all, git, new_repository, status

from remit import BlockingContext, CallerInfo, Remit, Return, Status, agent
from remit.testing import Fail, Say
from remit.testing import ModelTurn as Turn
from support.server import ORIGIN, Origin

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


async def review(where: Any, diff: str | None = None, timeout: float | None = None, **parameters: Any) -> Return:
    if not isinstance(where, Remit):
        async with Remit.open(where) as remit:
            return await review(remit, diff, timeout, **parameters)
    given = parameters if diff is None else {"diff": diff, **parameters}
    return await where.delegate("coder.review_code", parameters=given, **({} if timeout is None else {"timeout": timeout}))


def locations(result: Return, rule: str) -> set[tuple[str, int]]:
    return {(one["file"], one["line"]) for one in result.data["findings"] if one["rule"] == rule}


async def test_review_of_a_diff_has_findings_and_a_report(project: Path) -> None:
    result = await review(project, CHANGE, guidelines=["security-first", "no shell commands"])
    assert result.status is Status.COMPLETED, result
    assert (result.data["applies"], result.data["verdict"]) == ("applies", "needs changes")
    first = result.data["findings"][0]
    assert (first["file"], first["line"], first["severity"], first["rule"]) == ("src/a.py", 5, "high", "S605")
    assert first["suggestion"]
    assert "data.verdict" in result.next_steps
    assert set(result.data["tools"]) == {"ruff", "detect-secrets"}
    assert result.data["guidelines"] == {"checked": [], "notChecked": ["security-first", "no shell commands"]}
    assert result.warnings == ()
    (artifact,) = result.artifacts
    assert (artifact.type, Path(artifact.path).name) == ("report", "review.md")
    page = (project / artifact.path).read_text()
    assert page.startswith("# Review: needs changes\n")
    assert "`src/a.py:5`" in page
    assert "guideline: no shell commands" in page
    assert page.index("`os.system(input())`") < page.index("<!-- more -->") < page.index("## What was checked")
    assert status(project) == ""


@pytest.fixture
async def remit(project: Path) -> AsyncIterator[Remit]:
    async with Remit.open(project) as opened:
        yield opened


async def test_staged_working_and_committed_changes_are_reviewed(project: Path, remit: Remit) -> None:
    (project / "src" / "a.py").write_text("one = 1\ntwo = 2\nthree = eval(input())\n")
    (project / "src" / "new file.py").write_text("four = eval(input())\n")
    assert (await review(remit, "staged")).data["verdict"] == "nothing to review"
    expected = {("src/a.py", 3), ("src/new file.py", 1)}
    assert locations(await review(remit, "working"), "S307") == expected
    git(project, "add", "src/a.py")
    assert (await review(remit, "staged")).data["filesChanged"] == 1
    commit_all(project, "second")
    head = git(project, "rev-parse", "HEAD").strip()
    (project / "src" / "a.py").write_text("")
    for given in ({"diff": "HEAD"}, {"diff": "HEAD~1..HEAD"}, {"diff": "HEAD~1...HEAD"}, {"commit": head}, {"commit": "HEAD"}):
        assert locations(await review(remit, **given), "S307") == expected, f"{given}: the committed content"
    assert (await review(remit, commit="HEAD~1")).data["filesChanged"] == 4, "the whole first commit"


async def test_branch_is_reviewed_from_its_merge_base(project: Path, remit: Remit) -> None:
    git(project, "checkout", "-q", "-b", "topic")
    (project / "topic.py").write_text("x = eval(input())\n")
    commit_all(project, "topic")
    git(project, "checkout", "-q", "-")
    (project / "main.py").write_text("y = eval(input())\n")
    commit_all(project, "main")
    result = await review(remit, branch="topic")
    assert (result.data["filesChanged"], locations(result, "S307")) == (1, {("topic.py", 1)})


@pytest.mark.parametrize("given", [{}, {"path": ".", "commit": "HEAD"}, {"diff": "staged", "session": "s"}])
async def test_exactly_one_source_is_required(remit: Remit, given: dict[str, str]) -> None:
    result = await review(remit, **given)
    assert (result.status, result.errors[0].code) == (Status.FAILED, "INVALID_PARAMETERS")
    assert "diff, path, commit, branch, session" in result.errors[0].message


async def test_session_is_reviewed_by_its_own_principal_only(project: Path) -> None:
    @agent("changer", workspace="worktree")
    def changer(ctx: BlockingContext) -> dict[str, Any]:
        """Change a file."""
        (ctx.workspace / "src" / "a.py").write_text("one = eval(input())\n")
        return {"status": "completed", "summary": "One file was changed. It calls eval."}

    @agent("idle")
    def idle(ctx: BlockingContext) -> dict[str, Any]:
        """Change nothing."""
        return {"status": "completed", "summary": "Nothing was changed. It was read."}

    async with Remit.open(project, agents=[changer, idle]) as remit:
        changed = (await remit.delegate("changer")).metadata.session_id
        result = await review(remit, session=changed)
        assert locations(result, "S307") == {("src/a.py", 1)}, result
        nothing = await review(remit, session=(await remit.delegate("idle")).metadata.session_id)
        assert nothing.errors[0].code == "INVALID_PARAMETERS"
        token = ORIGIN.set(Origin(caller_info=CallerInfo(principal="other", door="http")))
        try:
            other = await review(remit, session=changed)
        finally:
            ORIGIN.reset(token)
        unknown = await review(remit, session="sess_0_none")
    assert [one.errors[0].code for one in (other, unknown)] == ["POLICY_DENIED", "POLICY_DENIED"]


async def test_git_settings_of_the_repository_run_nothing(project: Path) -> None:
    """Filters, external diffs, text conversion and file system monitors of a clone must not run."""
    (project / ".gitattributes").write_text("*.py diff=evil filter=evil -diff\n")
    evil = project / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {project}/ran\ncat\n")
    evil.chmod(0o755)
    drivers = ("diff.evil.command", "diff.evil.textconv", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process")
    for name in (*drivers, "core.fsmonitor", "diff.external"):
        git(project, "config", name, str(evil))
    (project / "src" / "a.py").write_text("one = eval(input())\n")
    assert locations(await review(project, "working"), "S307") == {("src/a.py", 1)}, "attributes hide no file"
    assert not (project / "ran").exists()
    commit_all(project, "second")
    (project / "ran").unlink()
    assert locations(await review(project, commit="HEAD"), "S307") == {("src/a.py", 1)}
    assert not (project / "ran").exists()


async def test_secret_in_a_diff_is_never_stored(project: Path) -> None:
    result = await review(project, CHANGE.replace("os.system(input())", f"key = '{TOKEN}'"))
    assert result.data["findings"][0]["rule"] == "secret"
    assert TOKEN not in str(result)
    kept = [path for path in (project / ".remit").rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert kept == []


async def test_review_that_meets_its_deadline_is_partial_with_what_was_found(project: Path, remit: Remit) -> None:
    lines = [f"+key = '{TOKEN}'\n", *["+" + "password" * 70 + "\n"] * 1000]  # each takes a tenth of a second
    result = await review(remit, f"--- /dev/null\n+++ b/x.py\n@@ -0,0 +1,{len(lines)} @@\n{''.join(lines)}", timeout=8)
    assert (result.status, result.errors[0].code) == (Status.PARTIAL, "TIMEOUT"), result
    assert locations(result, "secret") == {("x.py", 1)}
    assert {"Python (ruff): time was up", "syntax: time was up"} <= set(result.data["notChecked"])


@pytest.mark.parametrize("name", ["a.py", "a\tb.py", "a\nb.py"])
async def test_committed_files_forbidden_by_the_policy_are_not_read(project: Path, name: str) -> None:
    (project / "closed").mkdir()
    (project / "closed" / name).write_text("very_own_value = eval(input())\n")
    commit_all(project, "closed")
    rules = "permit(principal, action, resource);\n"
    rules += 'forbid(principal, action, resource) when { context has path && context.path like "closed/*" };'
    async with Remit.open(project, policy=rules) as remit:
        result = await review(remit, commit="HEAD")
    assert "very_own_value" not in str(result.data), result.data
    assert (result.data["files"][0]["applies"], result.data["files"][0]["why"]) == ("not checked", "the policy does not let it be read")


@pytest.mark.parametrize(
    "text",
    [
        "--- a/x.py\n+++ b/x.py\n@@ -1 +1,40000 @@\n" + f"+{'password' * 40}\n" * 40_000,
        "--- /dev/null\n+++ b/x.py\n@@ -0,0 +1 @@\n+" + "(" * 300_000 + "\n",
        "@@ -1 +1 @@\n" * 20_000,
    ],
    ids=["secrets", "python", "hunks"],
)
async def test_hostile_diff_meets_the_deadline_and_writes_nothing(project: Path, remit: Remit, text: str) -> None:
    result = await review(remit, text, timeout=8)
    assert result.status in (Status.COMPLETED, Status.PARTIAL, Status.FAILED), result
    assert result.errors == () or result.errors[0].code in ("TIMEOUT", "INVALID_PARAMETERS"), result
    assert status(project) == ""


# ---- with a model

TOTALS = """\
--- a/totals.py
+++ b/totals.py
@@ -1,3 +1,4 @@
 def total(values):
     result = 0
-    return sum(values)
+    for value in values[1:]:
+        result += value
"""
BEFORE = "def total(values):\n    result = 0\n    return sum(values)\n"


def judgement_of(*findings: Any) -> Say:
    return Say(json.dumps({"findings": list(findings)}))


def model_finding(
    file: Any = "totals.py", line: Any = 3, severity: Any = "high", reason: Any = "The first value is left out."
) -> dict[str, Any]:
    return {"file": file, "line": line, "severity": severity, "reason": reason, "suggestion": "Take all."}


async def review_with_model(root: Path, *script: Turn, diff: str = TOTALS, **parameters: Any) -> tuple[Return, list[str]]:
    (root / "totals.py").write_text(BEFORE)
    return await run_operation(root, script, "coder.review_code", diff=diff, **parameters)


async def test_findings_of_a_model_are_marked(tmp_path: Path) -> None:
    done, requests = await review_with_model(tmp_path, judgement_of(model_finding()), guidelines="every loop is explained by a comment")
    assert done.status is Status.COMPLETED, done
    (finding,) = [one for one in done.data["findings"] if one.get("by") == "model"]
    assert (finding["file"], finding["line"], finding["severity"]) == ("totals.py", 3, "high")
    assert finding["snippet"] == "for value in values[1:]:"
    judgement = {name: done.data["judgement"][name] for name in ("by", "model", "findings", "dropped")}
    assert judgement == {"by": "model", "model": "scripted", "findings": 1, "dropped": 0}
    assert (done.data["verdict"], done.data["judgement"]["verdictWithout"]) == ("needs changes", "looks fine")
    assert "every loop is explained by a comment" in requests[0]
    assert done.data["guidelines"] == {"checked": ["every loop is explained by a comment"], "notChecked": []}
    assert "judgement of a model" in (tmp_path / done.artifacts[0].path).read_text()


async def test_model_finding_outside_the_diff_is_dropped(tmp_path: Path) -> None:
    outside = [
        model_finding(line=99),
        model_finding(file="other.py"),
        model_finding(severity="fatal"),
        model_finding(line="3"),
        model_finding(reason=""),
        "words",
        model_finding(line=True),
    ]
    done, _ = await review_with_model(tmp_path, judgement_of(model_finding(), *outside))
    assert (done.data["judgement"]["findings"], done.data["judgement"]["dropped"]) == (1, 7)
    assert len([one for one in done.data["findings"] if one.get("by")]) == 1


@pytest.mark.parametrize("turn", [Fail(500), Say("Looks good to me!")])
async def test_findings_of_the_checks_remain_if_the_model_fails(tmp_path: Path, turn: Turn) -> None:
    change = TOTALS.replace("result += value", "result += eval(value)")
    done, _ = await review_with_model(tmp_path, turn, diff=change)
    assert done.status is Status.COMPLETED, done
    assert any(one["rule"] == "S307" for one in done.data["findings"])
    assert done.data["judgement"]["fault"]
    assert any("no model judged it" in words for words in done.data["notChecked"])


async def test_secrets_are_not_sent_to_the_model(tmp_path: Path) -> None:
    secret = "AKIA" + "Z7Q2M4N8P1R5T9W3"
    _, requests = await review_with_model(tmp_path, judgement_of(), diff=TOTALS.replace("result += value", f'result += "{secret}"'))
    assert requests
    assert secret not in requests[0]
