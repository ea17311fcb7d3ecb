"""The context of the assistant: always a history that providers accept, within its limits."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remit import Context, Failed, Remit, agent
from remit.agents.model.context_window import tokens_of
from remit.builtin.assistant.memory import Room, visible
from support.histories import Answer, Choice, Message, Question, Reply, SpendSink, ToolCall, ToolResult, UserMessage, faults_of, repaired

CHARACTERS = 700

texts = st.text(max_size=60)
huge = st.builds(lambda word, times: word * times, st.text(min_size=1, max_size=12), st.integers(1, 4000))
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts, huge),
    lambda inner: st.one_of(st.lists(inner, max_size=12), st.dictionaries(texts, inner, max_size=8)),
    max_leaves=30,
)
outcomes = st.one_of(
    st.tuples(st.sampled_from(["error", "return"]), huge),
    st.tuples(st.just("value"), values),
    st.tuples(st.just("artifacts"), st.integers(1, 40)),
)
PLANNED: list[tuple[str, Any]] = []
"""What the agent `odd` does at each call."""


@agent("odd")
async def odd(ctx: Context, number: int, padding: Any = None) -> Any:
    kind, what = PLANNED[number]
    if kind == "error":
        raise Failed(what, advice=what)
    if kind == "artifacts":
        for count in range(what):
            path = ctx.root / f"{'long' * 20}{number}-{count}.txt"
            path.write_text("x")
            ctx.artifact(path, "data", "s" * 400)
    if kind == "return":
        errors = [{"type": what, "message": what}]
        return {"status": "partial", "summary": "Not all of it.", "artifacts": [], "data": what, "errors": errors}
    return what


async def questions_of(remit: Remit, replies: list[Reply]) -> list[Question]:
    """The requests of two messages of a conversation to a model that answers with `replies`."""
    questions: list[Question] = []

    async def ask(spending: SpendSink, question: Question) -> Answer:
        questions.append(question)
        return Answer(reply=replies.pop(0), input_tokens=1, output_tokens=1)

    async with remit:
        remit.models.ask = ask  # type: ignore[method-assign]
        remit.models.choice = lambda own=None: Choice(names=("openai:recorded",))  # type: ignore[method-assign]
        first = await remit.delegate("assistant", message="Do it.")
        assert first.ok, first
        second = await remit.delegate("assistant", message="And then?", conversation=first.data["conversation"])
        assert second.ok, second
    return questions


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(planned=st.lists(outcomes, min_size=1, max_size=4), padding=st.one_of(st.none(), values), junk=huge)
def test_no_result_beyond_the_limit_enters_the_context(
    tmp_path_factory: pytest.TempPathFactory, planned: list[tuple[str, Any]], padding: Any, junk: str
) -> None:
    """End to end: delegations run, are recorded, shortened and stored, and a second message continues the conversation."""
    PLANNED[:] = planned
    calls = [
        ToolCall(call_id=str(number), name="delegate", arguments={"target": "odd", "parameters": {"number": number, "padding": padding}})
        for number in range(len(planned))
    ]
    strange = [
        ToolCall(call_id="s1", name=junk, arguments={"x": junk}),
        ToolCall(call_id="s2", name="delegate", arguments=junk),
        ToolCall(call_id="s3", name="delegate", arguments={"target": junk, junk: junk}),
    ]
    remit = Remit.open(tmp_path_factory.mktemp("odd"), agents=[odd], settings={"assistant": {"result_characters": CHARACTERS}})
    replies = [Reply(text="Look.", calls=(*calls, *strange), raw={"x": junk}), Reply(text="Done."), Reply(text="Again.")]
    questions = asyncio.run(questions_of(remit, replies))
    assert len(questions) == 3
    for question in questions:
        assert faults_of(repaired(question.messages)) == []
        for message in question.messages:
            assert len(message.text) <= CHARACTERS
            for call in message.calls if isinstance(message, Reply) else ():
                shown = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)
                assert len(shown) <= CHARACTERS
                assert len(call.name) <= 64
    said = {message.text for message in questions[-1].messages if isinstance(message, UserMessage | Reply)}
    assert said == {"Look.", "Done.", "Do it.", "And then?"}
    results = [message for message in questions[-1].messages if isinstance(message, ToolResult)]
    assert len(results) == len(planned) + len(strange)


def turns() -> st.SearchStrategy[list[Message]]:
    """Conversations: a message, calls with results, an answer."""
    words = st.text(min_size=1, max_size=300).map(lambda text: f"w{text}")

    @st.composite
    def turn(draw: Any) -> list[Message]:
        made: list[Message] = [UserMessage(text=draw(words))]
        for number in range(draw(st.integers(0, 3))):
            count = draw(st.integers(1, 3))
            calls = tuple(ToolCall(call_id=f"{number}-{one}", name="delegate", arguments={"target": draw(words)}) for one in range(count))
            made.append(Reply(text=draw(st.sampled_from(["", "Let me see."])), calls=calls))
            made += [ToolResult(call_id=call.call_id, name="delegate", text=draw(words) * draw(st.integers(1, 30))) for call in calls]
        return [*made, Reply(text=draw(words))]

    return st.lists(turn(), min_size=1, max_size=8).map(lambda many: [message for one in many for message in one])


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(turns(), st.integers(400, 4000))
def test_shortened_history_is_valid_fits_and_begins_as_before(said: list[Message], tokens: int) -> None:
    room, question = Room(tokens=tokens, characters=CHARACTERS), "The question?"
    call = ToolCall(call_id="z", name="delegate", arguments={"target": "t"})
    held = [*said, UserMessage(text=question), Reply(calls=(call,)), ToolResult(call_id="z", name="delegate", text="r" * 5000)]
    for end in (len(said) + 1, len(held)):
        shown = visible(held[:end], room, question)
        assert faults_of(repaired(shown)) == []
        assert any(isinstance(message, UserMessage) and question in message.text for message in shown)
        assert all(len(message.text) <= CHARACTERS for message in shown if isinstance(message, ToolResult))
        assert tokens_of(shown) <= max(room.tokens, 600)
