"""`coder.generate_code`: blocked without a model, or written by a model."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from scripted_coder import run_operation

from remit import Remit, Return, Status
from remit.testing import ModelTurn as Turn
from remit.testing import Say

GOOD, BAD = "def add(a, b):\n    return a + b\n", "def add(a, b:\n    return a + b\n"


@pytest.fixture
async def remit(tmp_path: Path) -> AsyncIterator[Remit]:
    async with Remit.open(tmp_path) as opened:
        yield opened


def files(**texts: str) -> Say:
    return Say(json.dumps({"files": [{"path": path, "content": text} for path, text in texts.items()], "notes": "Plain."}))


async def generated(root: Path, *script: Turn, **parameters: Any) -> tuple[Return, list[str]]:
    return await run_operation(root, script, "coder.generate_code", spec="A function that adds.", language="python", **parameters)


async def test_missing_model_is_blocked_with_advice(remit: Remit) -> None:
    result = await remit.delegate("coder.generate_code", spec="A function that adds.")
    assert (result.status, result.errors[0].code) == (Status.BLOCKED, "TOOL_UNAVAILABLE")
    assert "model =" in result.errors[0].recommendation


@pytest.mark.parametrize("parameters", [{"spec": "  "}, {"spec": "x", "language": "a\nb"}, {"spec": "x" * 200_001}])
async def test_invalid_request_is_refused(remit: Remit, parameters: dict[str, str]) -> None:
    result = await remit.delegate("coder.generate_code", parameters=parameters)
    assert (result.ok, result.errors[0].code) == (False, "INVALID_PARAMETERS")


async def test_generated_code_is_written_and_parses(tmp_path: Path) -> None:
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


async def test_syntax_error_is_repaired_once_with_the_exact_fault(tmp_path: Path) -> None:
    done, requests = await generated(tmp_path, files(**{"a.py": BAD, "b.py": GOOD}), files(**{"a.py": GOOD, "b.py": "b = 0\n"}))
    assert done.status is Status.COMPLETED, done
    assert ((tmp_path / "a.py").read_text(), (tmp_path / "b.py").read_text()) == (GOOD, GOOD), "valid files are not rewritten"
    assert done.data["repaired"]
    assert "'(' was never closed" in requests[1]
    done, requests = await generated(tmp_path, files(**{"c.py": BAD}))
    assert (done.status, done.errors[0].code, len(requests)) == (Status.PARTIAL, "VALIDATION_FAILED", 2), "the repair is still invalid"
    assert "line 1" in done.data["files"][0]["fault"]


@pytest.mark.parametrize("name", ["../out.py", ".git/hooks/pre-commit"])
async def test_path_outside_the_workspace_writes_nothing(tmp_path: Path, name: str) -> None:
    root = tmp_path / "project"
    root.mkdir()
    done, _ = await generated(root, files(**{"fine.py": GOOD, name: GOOD}))
    assert (done.status, done.errors[0].code) == (Status.FAILED, "VALIDATION_FAILED"), done
    assert not (root / "fine.py").exists()
    assert os.listdir(tmp_path) == ["project"]


async def test_existing_file_is_replaced_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("mine = True\n")
    done, requests = await generated(tmp_path, files(**{"a.py": GOOD, "b.py": GOOD}), files="a.py,")
    assert (done.status, done.errors[0].code) == (Status.PARTIAL, "FILE_EXISTS")
    assert ((tmp_path / "a.py").read_text(), (tmp_path / "b.py").read_text()) == ("mine = True\n", GOOD)
    assert (tmp_path / done.data["files"][0]["keptAt"]).read_text() == GOOD, "the generated text is kept"
    assert "mine = True" in requests[0]
    done, _ = await generated(tmp_path, files(**{"a.py": GOOD}), overwrite=True)
    assert (done.status, (tmp_path / "a.py").read_text()) == (Status.COMPLETED, GOOD)
