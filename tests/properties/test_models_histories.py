"""Whatever a history holds, what goes out is one that providers take: calls answered at once and in order, nothing empty."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.test import TestModel

from remit.models.messages import Choice, Message, Question, Reply, Result, Said, ToolCall
from remit.models.stream import request_of

texts = st.text(alphabet=st.characters(), max_size=12) | st.sampled_from(["", " ", "\0", "\ud800"])
ids = st.sampled_from(["1", "2", "3", "", "x y", "a" * 80])
arguments = st.dictionaries(texts, st.integers() | texts, max_size=2) | texts
calls = st.builds(ToolCall, call_id=ids, name=texts, arguments=arguments)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Said, text=texts),
    st.builds(
        Reply,
        text=texts,
        calls=st.lists(calls, max_size=3).map(tuple),
        model=st.sampled_from(["m", "n"]),
        raw=st.none() | st.just({"kind": 1}),
    ),
    st.builds(Result, call_id=ids, name=texts, text=texts, is_error=st.booleans()),
)


@given(st.lists(messages, max_size=8))
@settings(max_examples=150, deadline=None)
def test_every_history_becomes_one_that_providers_take(history: list[Message]) -> None:
    question = Question(choice=Choice(names=("m",)), instructions="Be kind.", messages=history)
    sent, _ = request_of(question, "m", TestModel(), structured=True)
    assert isinstance(sent[0], ModelRequest)
    assert isinstance(sent[-1], ModelRequest)
    assert sent[-1].instructions == "Be kind."
    waiting: list[str] = []
    for before, message in zip([None, *sent], sent, strict=False):
        assert type(before) is not type(message), "the two take turns"
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
            assert _text(part).strip(), "nothing is empty"
            _text(part).encode()


def _text(part: Any) -> str:
    if isinstance(part, ToolCallPart):
        return part.tool_name + part.args_as_json_str()
    assert isinstance(part, TextPart | UserPromptPart | ToolReturnPart)
    return str(part.content)
