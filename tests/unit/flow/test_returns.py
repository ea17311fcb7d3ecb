"""Any answer of an agent gives a return that obeys the contract, or faults, and never an exception."""

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit import Evidence, InvalidReturn, Return, Status
from remit.core.result import ARTIFACT_TYPES
from remit.runtime.receive import read_answer
from remit.runtime.validate import ExpectedReturn, validate_return

SESSION = "sess_1700000000_abc123"
FILES = ("a.md", "sub/b.json", "empty", "absent", "out", "up/secret", "sub", "../secret", "/etc/passwd", "a\0b", "in", "sub/../a.md", "")


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        inside = Path(folder) / "root"
        (inside / "sub").mkdir(parents=True)
        (Path(folder) / "secret").write_text("secret")
        (inside / "a.md").write_text("a")
        (inside / "sub" / "b.json").write_text("{}")
        (inside / "empty").touch()
        (inside / "out").symlink_to("../secret")
        (inside / "up").symlink_to("..")
        (inside / "in").symlink_to("a.md")
        yield inside


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=()), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def often(valid: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly valid, so that faults occur beside valid fields."""
    return st.integers(0, 19).flatmap(lambda draw: valid if draw else anything)


artifacts = st.fixed_dictionaries(
    {
        "type": often(st.sampled_from((*ARTIFACT_TYPES, "research"))),
        "path": often(st.sampled_from(("a.md", "sub/b.json", "in")) | st.sampled_from(FILES)),
    },
    optional={"summary": often(st.text(max_size=9)), "evidence": st.just("verified"), "sha256": anything, "odd": anything},
)
errors = st.fixed_dictionaries(
    {"type": often(st.just("timeout")), "message": often(st.just("Too slow."))},
    optional={
        "code": often(st.just("TIMEOUT")),
        "recoverable": often(st.booleans()),
        "recommendation": often(st.just("Wait.")),
        "odd": anything,
    },
)
metadata = st.fixed_dictionaries(
    {
        "session_id": often(st.just(SESSION)),
        "agent_type": often(st.just("digest")),
        "delegation_depth": often(st.just(1)),
        "delegation_path": often(st.just(["orchestrator", "digest"])),
    },
    optional={"phase_count": anything, "duration_seconds": anything},
)
returns = st.fixed_dictionaries(
    {
        "status": often(st.sampled_from(tuple(str(status) for status in Status))),
        "summary": often(st.sampled_from(("It is done. All is well.", "One only.", "x" * 500)) | st.sampled_from(("x" * 501, ""))),
        "artifacts": often(st.lists(artifacts, max_size=3)),
        "metadata": often(metadata),
    },
    optional={
        "errors": often(st.lists(errors, max_size=2)),
        "next_steps": often(st.just("Rest.")),
        "data": anything,
        "stop_reason": often(st.just("finished")),
        "warnings": anything,
        "evidence": st.just("verified"),
        "odd": anything,
    },
)


def known(root: Path, requires_artifacts: bool = False) -> ExpectedReturn:
    return ExpectedReturn(
        root=root,
        session_id=SESSION,
        agent="digest",
        depth=1,
        path=("orchestrator", "digest"),
        started_at=0.0,
        duration_seconds=1.0,
        requires_artifacts=requires_artifacts,
    )


def validate(answer: object, expected: ExpectedReturn) -> Return | None:
    """The return, or None if it was refused with faults. Any other exception is a failure."""
    received = read_answer(answer)
    if received.candidate is None:
        assert received.faults
        assert received.faults[0].startswith("Return is not valid JSON")
        return None
    assert not received.faults
    faults: tuple[str, ...] = ()
    try:
        return validate_return(received.candidate, expected)
    except InvalidReturn as refused:
        faults = refused.faults
    assert faults
    assert all(fault.strip() for fault in faults)
    return None


def assert_contract(result: Return, expected: ExpectedReturn) -> None:
    assert 0 < len(result.summary) <= 500
    assert (result.status is Status.COMPLETED) == (not result.errors)
    assert result.metadata.session_id == SESSION
    assert result.metadata.duration_seconds == 1.0
    assert result.evidence is not Evidence.VERIFIED
    assert all(error.code for error in result.errors)
    if expected.requires_artifacts and result.ok:
        assert result.artifacts
    top = os.path.realpath(expected.root)
    for artifact in result.artifacts:
        assert artifact.type in ARTIFACT_TYPES
        assert artifact.evidence is Evidence.CHECKED
        assert artifact.size
        assert os.path.realpath(os.path.join(top, artifact.path)).startswith(top + os.sep)
    assert Return.from_dict(json.loads(result.to_json())) == result


@given(held=st.binary(max_size=300) | st.text(st.characters(exclude_categories=()), max_size=300))
def test_any_bytes_or_text_give_a_return_or_faults(held: bytes | str, root: Path) -> None:
    result = validate(held, known(root))
    assert result is None


@settings(max_examples=100)
@given(fields=returns, requires_artifacts=st.booleans())
def test_valid_return_obeys_the_contract_and_passes_again_unchanged(fields: dict[str, Any], requires_artifacts: bool, root: Path) -> None:
    expected = known(root, requires_artifacts)
    result = validate(fields, expected)
    if result is not None:
        assert_contract(result, expected)
        assert validate_return(result.to_dict(), expected) == result


@given(fields=returns, before=st.text(max_size=40), after=st.text(max_size=40), cut=st.integers(0, 400))
def test_return_in_prose_whole_or_truncated_never_raises(fields: dict[str, Any], before: str, after: str, cut: int, root: Path) -> None:
    text = json.dumps(fields)
    for answer in (f"{before} {text} {after}", f"{before}\n```json\n{text}\n```\n{after}", before + text[:cut]):
        result = validate(answer, known(root))
        if result is not None:
            assert_contract(result, known(root))
