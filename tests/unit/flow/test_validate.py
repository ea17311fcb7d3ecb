"""Validation of returns."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from remit import Evidence, InvalidReturn, Return, Status, StopReason, check_return
from remit.runtime.return_format import EXAMPLE_SUMMARY
from remit.runtime.validate import ExpectedReturn, validate_return

SESSION = "sess_1700000000_abc123"
ERROR = {"type": "timeout", "message": "Too slow.", "recoverable": True, "recommendation": "Give it longer."}


def answer(**changed: Any) -> dict[str, Any]:
    metadata = {"session_id": SESSION, "agent_type": "digest", "delegation_depth": 1, "delegation_path": ["orchestrator", "digest"]}
    fields = {"status": "completed", "summary": "It is done. All is well.", "artifacts": [], "metadata": metadata}
    return {**fields, **changed}


def expected(root: Path, **changed: Any) -> ExpectedReturn:
    known: dict[str, Any] = {"session_id": SESSION, "agent": "digest", "depth": 1, "path": ("orchestrator", "digest")}
    return ExpectedReturn(**{"root": root, "duration_seconds": 2.5, **known, **changed})


def faults_of(candidate: dict[str, Any], known: ExpectedReturn) -> tuple[str, ...]:
    with pytest.raises(InvalidReturn) as caught:
        validate_return(candidate, known)
    return caught.value.faults


def metadata_with(**changed: Any) -> dict[str, Any]:
    return {**answer()["metadata"], **changed}


def test_valid_return_passes_with_the_measured_duration(tmp_path: Path) -> None:
    result = validate_return(answer(next_steps=["One.", "Two."], data={"n": 1}), expected(tmp_path))
    assert (result.status, result.stop_reason, result.evidence) == (Status.COMPLETED, StopReason.FINISHED, Evidence.CLAIMED)
    assert (result.metadata.duration_seconds, result.data, result.next_steps) == (2.5, {"n": 1}, "One.\nTwo.")
    assert result.warnings == ()


@pytest.mark.parametrize("field", ["agent_type", "delegation_depth", "delegation_path"])
def test_missing_lineage_metadata_is_filled_in_with_a_warning(tmp_path: Path, field: str) -> None:
    metadata = answer()["metadata"]
    known = metadata.pop(field)
    result = validate_return(answer(metadata=metadata), expected(tmp_path))
    assert result.metadata.to_dict()[field] == (tuple(known) if isinstance(known, list) else known)
    assert [warning.partition(";")[0] for warning in result.warnings] == [f"metadata.{field}: was missing"]
    with pytest.raises(InvalidReturn, match=f"metadata.{field}: is missing"):
        validate_return(answer(metadata=metadata), ExpectedReturn(root=tmp_path))


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        *(({field: None}, f"{field}: is missing") for field in ("status", "summary", "artifacts", "metadata")),
        *(({"status": status}, "status: ") for status in ("Completed", "COMPLETED", "done", "", 1, ["completed"])),
        ({"errors": [ERROR]}, "errors: must be empty when status is completed, has 1"),
        *(({"status": status}, f"errors: must not be empty when status is {status}") for status in ("partial", "failed", "blocked")),
        ({"summary": EXAMPLE_SUMMARY}, "summary: is copied from the example"),
    ],
)
def test_faulty_field_is_named(tmp_path: Path, changed: dict[str, Any], fault: str) -> None:
    fields = {name: value for name, value in answer(**changed).items() if value is not None}
    (found,) = faults_of(fields, expected(tmp_path))
    assert found.startswith(fault)


@pytest.mark.parametrize(
    ("bad", "starts"),
    [
        (
            {"status": None, "artifacts": [{"path": 3}, "x"], "metadata": metadata_with(delegation_depth="1"), "errors": [{"type": "x"}]},
            ["status:", "artifacts[0].type:", "artifacts[0].path:", "artifacts[1]:", "metadata.delegation_depth:", "errors[0].message:"],
        ),
        (
            {
                "summary": "",
                "artifacts": [{"type": "poem", "path": "/etc/passwd"}],
                "metadata": metadata_with(session_id="sess_1700000000_zzzzzz"),
            },
            ["summary:", "artifacts: type of '/etc/passwd'", "artifacts: '/etc/passwd'", "metadata.session_id:"],
        ),
    ],
    ids=["form", "content"],
)
def test_every_fault_of_form_and_then_of_content_is_named_at_once(tmp_path: Path, bad: dict[str, Any], starts: list[str]) -> None:
    faults = faults_of(answer(**bad), expected(tmp_path))
    assert len(faults) == len(starts)
    assert all(any(fault.startswith(start) for fault in faults) for start in starts), faults


def test_wrong_lineage_metadata_is_corrected_with_a_warning(tmp_path: Path) -> None:
    result = validate_return(answer(metadata=metadata_with(agent_type="me", delegation_depth=7, delegation_path=[])), expected(tmp_path))
    assert result.metadata.agent_type == "digest"
    assert (result.metadata.delegation_depth, result.metadata.delegation_path) == (1, ("orchestrator", "digest"))
    assert len(result.warnings) == 3


def test_unknown_fields_and_optional_metadata_are_kept(tmp_path: Path) -> None:
    metadata = metadata_with(phase_count=3, duration_seconds=99999)
    result = validate_return(answer(task_number=195, phase_statuses=["a"], metadata=metadata), expected(tmp_path))
    assert result.extra == {"task_number": 195, "phase_statuses": ["a"]}
    assert result.metadata.extra == {"phase_count": 3}
    assert Return.from_dict(json.loads(result.to_json())).extra == result.extra


def test_artifact_is_recorded_as_inspected_not_as_claimed(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("hello")
    lie = {"type": "research", "path": "./a.md", "evidence": "verified", "size": 1, "sha256": "00", "mtime": 1, "mood": "good"}
    result = validate_return(answer(artifacts=[lie], evidence="verified"), expected(tmp_path))
    (artifact,) = result.artifacts
    assert (artifact.type, artifact.path, artifact.size, artifact.evidence) == ("report", "a.md", 5, Evidence.CHECKED)
    assert artifact.sha256 is not None
    assert len(artifact.sha256) == 64
    assert result.evidence is Evidence.CHECKED


@pytest.mark.parametrize("path", ["absent.md", "empty.md", "folder", "../x", "/etc/passwd", "a\0b", "out", "", "pipe"])
def test_completed_requires_every_artifact_to_be_a_non_empty_file_inside(tmp_path: Path, path: str) -> None:
    (tmp_path / "empty.md").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "out").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    (fault,) = faults_of(answer(artifacts=[{"type": "report", "path": path}]), expected(tmp_path))
    assert fault.startswith("artifacts: ")


def test_missing_artifacts_of_unfinished_work_are_dropped_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "half.md").write_text("half")
    both = [{"type": "report", "path": "half.md"}, {"type": "report", "path": "absent.md"}]
    result = validate_return(answer(status="partial", errors=[ERROR], artifacts=both), expected(tmp_path))
    assert [artifact.path for artifact in result.artifacts] == ["half.md"]
    assert any("absent.md" in warning and "dropped" in warning for warning in result.warnings)


def test_phantom_work_is_refused(tmp_path: Path) -> None:
    now = time.time()
    known = expected(tmp_path, requires_artifacts=True, started_at=now)
    (fault,) = faults_of(answer(), known)
    assert "phantom work" in fault
    old = tmp_path / "old.md"
    old.write_text("from before")
    os.utime(old, (now - 100, now - 100))
    listed = [{"type": "report", "path": "old.md"}]
    (fault,) = faults_of(answer(artifacts=listed), known)
    assert "phantom work" in fault
    (tmp_path / "new.md").write_text("from now")
    assert validate_return(answer(artifacts=[*listed, {"type": "report", "path": "new.md"}]), known).ok


def test_missing_error_code_is_derived_and_a_given_one_kept(tmp_path: Path) -> None:
    errors = [ERROR, {"type": "odd", "message": "m"}, {"type": "timeout", "message": "m", "code": "MINE"}]
    result = validate_return(answer(status="failed", errors=errors), expected(tmp_path))
    assert [error.code for error in result.errors] == ["TIMEOUT", "UNKNOWN_ERROR", "MINE"]


def test_check_return_accepts_text_and_objects_and_lists_faults(tmp_path: Path) -> None:
    assert check_return(json.dumps(answer()), SESSION, tmp_path).ok
    assert check_return(answer(), root=str(tmp_path)).ok
    with pytest.raises(InvalidReturn, match="Return is not valid JSON"):
        check_return("I am done.")
    with pytest.raises(InvalidReturn, match=r"metadata\.session_id: must look like"):
        check_return(answer(metadata=metadata_with(session_id="x")))
