"""JSON, times, results and chunks as messages of gRPC, there and back."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.agents.grpc.messages import Place, chunk_of_message, message_of_chunk, result_of_task, task_of
from remit.agents.proto.v1 import tasks_pb2 as pb
from remit.agents.proto.values import MAX_LEVELS, dict_of, json_of, nanoseconds, seconds, struct_of, value_of
from remit.core.delegate_results import Chunk, ChunkType, DelegateResult, TaskError, TaskMetadata, TaskState, final_chunk
from remit.core.result import Artifact, Evidence

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12)


def over_the_wire(value: Any) -> Any:
    message = pb.TaskChunk()
    message.complete.data.CopyFrom(value_of(value))
    return json_of(pb.TaskChunk.FromString(message.SerializeToString()).complete.data)


def nested(levels: int, value: Any) -> Any:
    for _ in range(levels):
        value = {"a": [value]}
    return value


@given(JSON)
@settings(max_examples=60, deadline=None)
def test_json_comes_back_as_it_went(value: Any) -> None:
    assert over_the_wire(value) == value


@pytest.mark.parametrize("number", [0, 1, -7, 2**53, -(2**53)])
def test_an_integer_comes_back_as_an_integer(number: int) -> None:
    back = over_the_wire([number])[0]
    assert (back, type(back)) == (number, int)


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 2**64 - 1, 10**400])
def test_an_integer_that_a_double_would_round_goes_as_its_digits(number: int) -> None:
    """Nothing is corrupted silently."""
    assert over_the_wire({"n": number}) == {"n": str(number)}


def test_what_json_has_no_word_for_is_null_and_half_a_character_a_question_mark() -> None:
    assert over_the_wire([math.nan, math.inf, "a\ud800", {"\udfff": 1}]) == [None, None, "a?", {"?": 1}]


@pytest.mark.parametrize("levels", [5, 13, 14, 40, 300])
def test_what_is_nested_deeper_than_readers_take_goes_as_json_text(levels: int) -> None:
    back = over_the_wire(nested(levels, "\ud800"))
    if 2 * levels <= MAX_LEVELS:
        assert back == nested(levels, "?")
        return
    for _ in range(MAX_LEVELS // 2):
        back = back["a"][0]
    assert isinstance(back, str)
    assert back.startswith('{"a"')


def test_a_struct_is_an_object() -> None:
    assert dict_of(struct_of({"a": {}, "b": [], "c": None})) == {"a": {}, "b": [], "c": None}


@given(st.floats(0.0, 4e9))
@settings(max_examples=60, deadline=None)
def test_a_moment_comes_back_to_the_nanosecond(moment: float) -> None:
    """Converted once, at the border."""
    assert (seconds(nanoseconds(moment)) or 0.0) == pytest.approx(moment, abs=1e-9)


@given(st.floats(1.7e9, 2.2e9))
@settings(max_examples=60, deadline=None)
def test_a_date_comes_back_exactly(moment: float) -> None:
    assert seconds(nanoseconds(moment)) == moment


def test_times_that_no_field_holds_are_the_longest() -> None:
    assert nanoseconds(math.inf) == nanoseconds(1e30) == 2**63 - 1
    assert nanoseconds(None) == 0
    assert seconds(0) is None


def whole_result() -> DelegateResult:
    return DelegateResult(
        success=False,
        task_id="sess_1766000000_abc123",
        task_state=TaskState.TIMEOUT,
        data={"rows": [1, 2.5, None], "n": 2**53},
        output="Half of it was done.",
        artifacts=(
            Artifact(type="report", path="a.md", summary="A", evidence=Evidence.CHECKED, size=3, sha256="ab", mtime=1766000000.25),
            Artifact(type="data", path="b.csv"),
        ),
        error=TaskError(code="TASK_TIMEOUT", message="too late", recommendation="again", details={"code": "TIMEOUT", "recoverable": True}),
        metadata=TaskMetadata(
            target="worker",
            operation="read_file",
            created_at=1766000000.123456,
            completed_at=1766000001.623456,
            duration_ms=1500.123,
            agent_id="worker.read_file",
            status="partial",
            stop_reason="deadline",
        ),
    )


def test_a_result_comes_back_whole() -> None:
    """The same object by every way."""
    place = Place("sess_1", "sess_2", 2, ("orchestrator", "a", "worker.read_file"), 3, 1766000060.5, "token:ci", "talk-7")
    task = pb.Task.FromString(task_of(whole_result(), place).SerializeToString())
    assert result_of_task(task) == whole_result()
    assert result_of_task(task).to_dict() == whole_result().to_dict()
    assert (task.root_id, task.depth, list(task.path), task.principal, task.session_id) == (
        "sess_1",
        2,
        [*place.path],
        "token:ci",
        "talk-7",
    )


def test_a_result_of_something_that_still_runs_comes_back() -> None:
    meta = TaskMetadata(target="worker", operation=None, created_at=1766000000.5, agent_id="worker")
    running = DelegateResult(success=False, task_id="sess_1766000000_abc123", task_state=TaskState.RUNNING, metadata=meta)
    assert result_of_task(task_of(running)) == running


@pytest.mark.parametrize(
    "chunk",
    [
        Chunk(type=ChunkType.PROGRESS, task_id="sess_1", data={"message": "on it"}, number=8),
        Chunk(type=ChunkType.PROGRESS, task_id="sess_1", data={"message": "half", "fraction": 0.5}, number=9),
        Chunk(type=ChunkType.STATUS, task_id="sess_1", data={"state": "PAUSED", "message": "Waiting for a person's approval"}, number=10),
        Chunk(type=ChunkType.DATA, task_id="sess_1", data={"chunk": {"row": [1, None]}}, number=11),
        Chunk(type=ChunkType.DATA, task_id="sess_1", data={"chunk": None}, number=12),
        final_chunk(whole_result(), 13),
    ],
)
def test_a_chunk_comes_back_as_it_went(chunk: Chunk) -> None:
    assert chunk_of_message(pb.TaskChunk.FromString(message_of_chunk(chunk).SerializeToString())) == chunk
