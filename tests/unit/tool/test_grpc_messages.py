"""JSON, times, results and chunks round-trip as gRPC messages."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import Artifact, CallerInfo, Chunk, DelegateResult, Evidence, TaskState
from remit import tasks_pb2 as pb
from remit.agents.grpc.messages import chunk_of_message, message_of_chunk, result_of_task, task_of
from remit.agents.proto.values import MAX_LEVELS, json_of, nanoseconds, seconds, value_of
from remit.core.delegate_results import ChunkType, TaskError, TaskMetadata, final_chunk
from remit.testing.store_samples import record

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
def test_json_round_trips(value: Any) -> None:
    assert over_the_wire(value) == value


@pytest.mark.parametrize("number", [0, 1, -7, 2**53, -(2**53)])
def test_integer_stays_an_integer(number: int) -> None:
    back = over_the_wire([number])[0]
    assert (back, type(back)) == (number, int)


@pytest.mark.parametrize("number", [2**53 + 1, -(2**53) - 1, 2**64 - 1, 10**400])
def test_integer_beyond_double_precision_is_sent_as_text(number: int) -> None:
    assert over_the_wire({"n": number}) == {"n": str(number)}


def test_values_that_json_cannot_express_are_replaced() -> None:
    assert over_the_wire([math.nan, math.inf, "a\ud800", {"\udfff": 1}]) == [None, None, "a?", {"?": 1}]


@pytest.mark.parametrize("levels", [5, 13, 14, 40, 300])
def test_deeply_nested_values_are_sent_as_json_text(levels: int) -> None:
    back = over_the_wire(nested(levels, "\ud800"))
    if 2 * levels <= MAX_LEVELS:
        assert back == nested(levels, "?")
        return
    for _ in range(MAX_LEVELS // 2):
        back = back["a"][0]
    assert isinstance(back, str)
    assert back.startswith('{"a"')


@given(st.floats(1.7e9, 2.2e9))
def test_timestamp_round_trips_exactly(moment: float) -> None:
    assert seconds(nanoseconds(moment)) == moment


def test_times_out_of_range_are_clamped() -> None:
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


def test_result_round_trips() -> None:
    known = record(1, parent=2, depth=2, caller_info=CallerInfo("token:ci", "grpc", "talk-7"))
    task = pb.Task.FromString(task_of(whole_result(), known).SerializeToString())
    assert result_of_task(task) == whole_result()
    assert result_of_task(task).to_dict() == whole_result().to_dict()
    lineage = (task.root_id, task.depth, tuple(task.path), task.principal, task.session_id)
    assert lineage == (known.root_id, 2, known.path, "token:ci", "talk-7")


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
def test_chunk_round_trips(chunk: Chunk) -> None:
    assert chunk_of_message(pb.TaskChunk.FromString(message_of_chunk(chunk).SerializeToString())) == chunk
