"""Results shown to a model stay within their limit, and conversations in the order that providers require."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.test import TestModel

from remit import Artifact, DelegateResult, TaskState
from remit.core.delegate_results import LEAST_CHARACTERS, TaskError, TaskMetadata, shorten_result, text_of
from remit.models.stream import request_of
from support.histories import Choice, Message, Question, Reply, ToolCall, ToolResult, UserMessage

TASK = "sess_1700000000_abc123"
ugly = st.text(st.characters(codec=None, exclude_categories=()), max_size=40) | st.sampled_from(
    ['\x00\x1f"\\\n', "\ud800", "é🙂", "a" * 30]
)
long_text = st.builds(lambda text, times: text * times, ugly, st.integers(1, 400))
data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | long_text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(ugly, inner, max_size=5),
    max_leaves=12,
)
errors = st.none() | st.builds(TaskError, code=st.just("TASK_FAILED"), message=long_text, recommendation=long_text)
artifacts = st.lists(st.builds(Artifact, type=st.just("report"), path=ugly, summary=long_text), max_size=30).map(tuple)


@st.composite
def results(draw: Any) -> DelegateResult:
    error = draw(errors)
    return DelegateResult(
        success=error is None,
        task_id=TASK,
        task_state=TaskState.COMPLETED if error is None else TaskState.FAILED,
        data=draw(data),
        output=draw(long_text),
        artifacts=draw(artifacts),
        error=error,
        metadata=TaskMetadata(agent_id="worker.read_file", created_at=0.0),
    )


@settings(max_examples=60)
@given(results(), st.integers(0, 6000))
def test_shortened_result_fits_and_keeps_its_essentials(result: DelegateResult, limit: int) -> None:
    shown = shorten_result(result, limit)
    assert len(shown) <= max(limit, LEAST_CHARACTERS)
    shown.encode()
    document = json.loads(shown)
    assert document["taskId"] == TASK
    assert document["success"] is result.success
    if result.error is not None:
        assert document["error"]["code"] == "TASK_FAILED"
        assert document["error"]["message"] or not result.error.message
    if "leftOut" in document:
        parameters = document["readOn"]["parameters"]
        assert parameters["taskId"] == TASK
        assert document["readOn"]["target"] == "results"
        if parameters["part"] == "data" and isinstance(document.get("data"), str):
            assert document["data"][: parameters["offset"]] == text_of(result.data)[: parameters["offset"]]


texts = st.text(alphabet=st.characters(), max_size=12) | st.sampled_from(["", " ", "\0", "\ud800"])
ids = st.sampled_from(["1", "2", "3", "", "x y", "a" * 80])
arguments = st.dictionaries(texts, st.integers() | texts, max_size=2) | texts
any_calls = st.builds(ToolCall, call_id=ids, name=texts, arguments=arguments)
any_messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(UserMessage, text=texts),
    st.builds(
        Reply,
        text=texts,
        calls=st.lists(any_calls, max_size=3).map(tuple),
        model=st.sampled_from(["m", "n"]),
        raw=st.none() | st.just({"kind": 1}),
    ),
    st.builds(ToolResult, call_id=ids, name=texts, text=texts, is_error=st.booleans()),
)


@given(st.lists(any_messages, max_size=8))
@settings(max_examples=60)
def test_any_history_becomes_valid_for_providers(history: list[Message]) -> None:
    question = Question(choice=Choice(names=("m",)), instructions="Be kind.", messages=history)
    sent, _ = request_of(question, "m", TestModel(), structured=True)
    assert isinstance(sent[0], ModelRequest)
    assert isinstance(sent[-1], ModelRequest)
    assert sent[-1].instructions == "Be kind."
    waiting: list[str] = []
    for before, message in zip([None, *sent], sent, strict=False):
        assert type(before) is not type(message), "requests and responses alternate"
        if isinstance(message, ModelResponse):
            waiting = [part.tool_call_id for part in message.parts if isinstance(part, ToolCallPart)]
            assert len(set(waiting)) == len(waiting)
            assert message.parts
        else:
            results = [part.tool_call_id for part in message.parts if isinstance(part, ToolReturnPart)]
            assert results == waiting
            assert [isinstance(part, ToolReturnPart) for part in message.parts][: len(results)] == [True] * len(results)
            waiting = []
        for part in message.parts:
            assert _text(part).strip(), "no part is empty"
            _text(part).encode()


def _text(part: Any) -> str:
    if isinstance(part, ToolCallPart):
        return part.tool_name + part.args_as_json_str()
    assert isinstance(part, TextPart | UserPromptPart | ToolReturnPart)
    return str(part.content)
