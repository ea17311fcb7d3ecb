"""The context of the assistant: always a history that providers accept, within its limits."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remit.agents.model.context_window import tokens_of
from remit.builtin.assistant.memory import Room, visible
from support.histories import Message, Reply, ToolCall, ToolResult, UserMessage, faults_of, repaired

CHARACTERS = 700


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
