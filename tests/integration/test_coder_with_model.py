"""`coder.generate_code` and `coder.review_code` with a model. Against the scripted model server."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from remit import Remit, Return, Status
from remit.testing.models import Fail, Say, ScriptedModels, Turn

GOOD, BAD = "def add(a, b):\n    return a + b\n", "def add(a, b:\n    return a + b\n"
CHANGE = """\
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


def files(**texts: str) -> Say:
    return Say(json.dumps({"files": [{"path": path, "content": text} for path, text in texts.items()], "notes": "Plain."}))


async def asked(
    root: Path, script: Sequence[Turn], operation: str, more: dict[str, Any] | None = None, **parameters: Any
) -> tuple[Return, list[str]]:
    turns = list(script)
    async with ScriptedModels(lambda request: turns.pop(0) if len(turns) > 1 else turns[0]) as server:
        known = {"scripted": {"kind": "openai", "url": server.openai_url, "model": "scripted"}}
        async with Remit.open(root, settings={"model": "scripted", "models": known, **(more or {})}) as remit:
            done = await remit.delegate(operation, parameters=parameters, timeout=60)
        return done, [json.dumps(request.body, ensure_ascii=False) for request in server.requests]


async def generated(root: Path, *script: Turn, **parameters: Any) -> tuple[Return, list[str]]:
    return await asked(root, script, "coder.generate_code", spec="A function that adds.", language="python", **parameters)


async def test_what_a_model_writes_stands_in_the_workspace_and_parses(tmp_path: Path) -> None:
    done, requests = await generated(tmp_path, files(**{"pkg/adding.py": GOOD, "data.json": "{}\n", "notes.txt": "Words.\n"}))
    assert done.status is Status.COMPLETED, done
    assert (tmp_path / "pkg/adding.py").read_text() == GOOD
    assert [(one["path"], one["language"], one["parses"]) for one in done.data["files"]] == [
        ("pkg/adding.py", "python", True),
        ("data.json", "json", True),
        ("notes.txt", "text", None),
    ]
    assert {artifact.path for artifact in done.artifacts} == {"pkg/adding.py", "data.json", "notes.txt"}
    assert "A function that adds." in requests[0]
    assert len(requests) == 1


async def test_what_does_not_parse_is_repaired_once_with_the_exact_fault(tmp_path: Path) -> None:
    done, requests = await generated(tmp_path, files(**{"a.py": BAD, "b.py": GOOD}), files(**{"a.py": GOOD, "b.py": "b = 0\n"}))
    assert done.status is Status.COMPLETED, done
    assert ((tmp_path / "a.py").read_text(), (tmp_path / "b.py").read_text()) == (GOOD, GOOD), "what parsed is kept as it was"
    assert done.data["repaired"]
    assert "'(' was never closed" in requests[1]


async def test_what_still_does_not_parse_is_partial_and_says_where(tmp_path: Path) -> None:
    done, requests = await generated(tmp_path, files(**{"a.py": BAD}))
    assert (done.status, done.errors[0].code, len(requests)) == (Status.PARTIAL, "VALIDATION_FAILED", 2)
    assert done.data["files"][0]["parses"] is False
    assert "line 1" in done.data["files"][0]["fault"]


@pytest.mark.parametrize(
    "name", ["../out.py", "/abs.py", "a//b.py", "a/../../b.py", ".git/hooks/pre-commit", "nul\0.py", "C:\\x.py", "~/x.py"]
)
async def test_a_path_outside_of_the_workspace_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    root = tmp_path / "project"
    root.mkdir()
    done, _ = await generated(root, files(**{"fine.py": GOOD, name: GOOD}))
    assert (done.status, done.errors[0].code) == (Status.FAILED, "VALIDATION_FAILED"), done
    assert not (root / "fine.py").exists()
    assert os.listdir(tmp_path) == ["project"]


async def test_a_folder_that_leads_outside_is_not_written_through(tmp_path: Path) -> None:
    root, outside = tmp_path / "project", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (root / "link").symlink_to(outside)
    done, _ = await generated(root, files(**{"link/a.py": GOOD}), overwrite=True)
    assert done.status is Status.PARTIAL, done
    assert not os.listdir(outside)


async def test_a_file_that_is_there_is_replaced_only_when_asked(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("mine = True\n")
    done, requests = await generated(tmp_path, files(**{"a.py": GOOD, "b.py": GOOD}), files="a.py,")
    assert (done.status, done.errors[0].code) == (Status.PARTIAL, "FILE_EXISTS")
    assert (tmp_path / "a.py").read_text() == "mine = True\n"
    assert (tmp_path / "b.py").read_text() == GOOD
    assert (tmp_path / done.data["files"][0]["keptAt"]).read_text() == GOOD, "what was written is not lost"
    assert "mine = True" in requests[0]
    done, _ = await generated(tmp_path, files(**{"a.py": GOOD}), overwrite=True)
    assert (done.status, (tmp_path / "a.py").read_text()) == (Status.COMPLETED, GOOD)


async def test_code_blocks_with_names_are_taken_too(tmp_path: Path) -> None:
    done, _ = await generated(tmp_path, Say(f"Here it is.\n\n### `adding.py`\n\n```python\n{GOOD}```\n"))
    assert done.status is Status.COMPLETED, done
    assert (tmp_path / "adding.py").read_text() == GOOD


@pytest.mark.parametrize(("turn", "code"), [(Fail(500), "AGENT_UNAVAILABLE"), (Say("I would rather not."), "VALIDATION_FAILED")])
async def test_a_model_that_writes_nothing_is_told_of(tmp_path: Path, turn: Turn, code: str) -> None:
    done, _ = await generated(tmp_path, turn)
    assert (done.ok, done.errors[0].code) == (False, code), done


async def test_a_key_that_is_missing_is_asked_for_by_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY_AT_ALL", raising=False)
    table = {"m": {"kind": "openai", "url": "http://127.0.0.1:9/v1", "model": "m", "key_variable": "NO_SUCH_KEY_AT_ALL"}}
    async with Remit.open(tmp_path, settings={"model": "m", "models": table}) as remit:
        done = await remit.delegate("coder.generate_code", spec="x")
    assert (done.status, done.errors[0].code) == (Status.BLOCKED, "TOOL_UNAVAILABLE"), done
    assert "NO_SUCH_KEY_AT_ALL" in done.errors[0].message + done.errors[0].recommendation


async def test_too_many_files_are_refused(tmp_path: Path) -> None:
    done, _ = await generated(tmp_path, files(**{f"f{number}.py": "x = 1\n" for number in range(60)}))
    assert (done.status, done.errors[0].code) == (Status.FAILED, "VALIDATION_FAILED")
    assert not any(name.endswith(".py") for name in os.listdir(tmp_path))


async def test_without_a_model_both_ways_are_named(tmp_path: Path) -> None:
    async with Remit.open(tmp_path) as remit:
        done = await remit.delegate("coder.generate_code", spec="x")
    assert done.status is Status.BLOCKED
    assert "model =" in done.errors[0].recommendation
    assert "generate_on" in done.errors[0].recommendation


def judged(*findings: Any) -> Say:
    return Say(json.dumps({"findings": list(findings)}))


def says(file: Any = "totals.py", line: Any = 3, severity: Any = "high", reason: Any = "The first value is left out.") -> dict[str, Any]:
    return {"file": file, "line": line, "severity": severity, "reason": reason, "suggestion": "Take all."}


async def reviewed(root: Path, *script: Turn, diff: str = CHANGE, **parameters: Any) -> tuple[Return, list[str]]:
    (root / "totals.py").write_text(BEFORE)
    return await asked(root, script, "coder.review_code", diff=diff, **parameters)


async def test_a_models_judgement_stands_beside_the_findings_of_the_checks_and_is_marked(tmp_path: Path) -> None:
    done, requests = await reviewed(tmp_path, judged(says()), guidelines="every loop is explained by a comment")
    assert done.status is Status.COMPLETED, done
    (finding,) = [one for one in done.data["findings"] if one.get("by") == "model"]
    assert (finding["file"], finding["line"], finding["severity"]) == ("totals.py", 3, "high")
    assert finding["snippet"] == "for value in values[1:]:"
    assert done.data["judgement"] | {"verdictWithout": ""} == {
        "by": "model",
        "model": "scripted",
        "findings": 1,
        "dropped": 0,
        "verdictWithout": "",
    }
    assert done.data["verdict"] == "needs changes"
    assert "every loop is explained by a comment" in requests[0]
    assert done.data["guidelines"] == {"checked": ["every loop is explained by a comment"], "notChecked": []}
    assert "judgement of a model" in (tmp_path / done.artifacts[0].path).read_text()


async def test_a_judgement_outside_of_the_diff_is_dropped_and_counted(tmp_path: Path) -> None:
    outside = [says(line=99), says(file="other.py"), says(severity="fatal"), says(line="3"), says(reason=""), "words", says(line=True)]
    done, _ = await reviewed(tmp_path, judged(says(), *outside))
    assert (done.data["judgement"]["findings"], done.data["judgement"]["dropped"]) == (1, 7)
    assert len([one for one in done.data["findings"] if one.get("by")]) == 1


@pytest.mark.parametrize("turn", [Fail(500), Say("Looks good to me!")])
async def test_the_findings_of_the_checks_stand_whatever_the_model_does(tmp_path: Path, turn: Turn) -> None:
    change = CHANGE.replace("result += value", "result += eval(value)")
    done, _ = await reviewed(tmp_path, turn, diff=change)
    assert done.status is Status.COMPLETED, done
    assert any(one["rule"] == "S307" for one in done.data["findings"])
    assert done.data["judgement"]["fault"]
    assert any("no model judged it" in words for words in done.data["notChecked"])


async def test_secrets_of_a_change_do_not_reach_the_model(tmp_path: Path) -> None:
    secret = "AKIA" + "Z7Q2M4N8P1R5T9W3"
    _, requests = await reviewed(tmp_path, judged(), diff=CHANGE.replace("result += value", f'result += "{secret}"'))
    assert requests
    assert secret not in requests[0]


async def test_a_judgement_of_a_file_that_the_model_was_not_shown_is_dropped(tmp_path: Path) -> None:
    long = "--- /dev/null\n+++ b/long.txt\n@@ -0,0 +1,400 @@\n" + f"+{'word ' * 60}\n" * 400
    done, _ = await reviewed(tmp_path, judged(says(), says(file="long.txt", line=2)), diff=CHANGE + long)
    assert (done.data["judgement"]["findings"], done.data["judgement"]["dropped"]) == (1, 1), done.data["judgement"]
    assert done.data["judgement"]["notShown"] == ["long.txt"]
