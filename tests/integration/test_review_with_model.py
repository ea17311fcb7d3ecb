"""`coder.review_code` with a model: its judgement beside the checks. Against the scripted model server."""

import json
from pathlib import Path
from typing import Any

import pytest
from scripted_coder import asked

from remit import Return, Status
from remit.testing.models import Fail, Say, Turn

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
    judgement = {name: done.data["judgement"][name] for name in ("by", "model", "findings", "dropped")}
    assert judgement == {"by": "model", "model": "scripted", "findings": 1, "dropped": 0}
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
