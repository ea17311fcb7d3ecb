"""Models without tool support: the prompt they get, and how their JSON is parsed without ever raising."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.core.model_messages import Choice, Question, Reply, ToolCall, ToolOffer, ToolResult, UserMessage
from remit.models.prompted_tools import as_prompt, parse_reply, reply_schema

STRICT: dict[str, Any] = {
    "type": "object",
    "properties": {"target": {"enum": ["w", "r"]}, "operation": {"enum": ["read"]}, "parameters": {"type": "object"}},
    "allOf": [
        {
            "if": {"properties": {"target": {"const": "w"}}, "required": ["target"]},
            "then": {"properties": {"operation": {"enum": ["read"]}}},
        },
        {
            "if": {"properties": {"target": {"const": "w"}, "operation": {"const": "read"}}, "required": ["target", "operation"]},
            "then": {"properties": {"parameters": {"$ref": "#/$defs/w.read"}, "timeout": {"maximum": 1000}}},
        },
        {
            "if": {"properties": {"target": {"const": "r"}}, "required": ["target"], "not": {"required": ["operation"]}},
            "then": {"properties": {"parameters": {"type": "object"}}},
        },
    ],
    "$defs": {
        "w.read": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"], "additionalProperties": False}
    },
}
PLAIN = {name: STRICT[name] for name in ("type", "properties")}
TOOL = ToolOffer(name="delegate", description="Hands out work.", schema=PLAIN, strict=lambda: STRICT)


def question(*messages: Any, **given: Any) -> Question:
    return Question(choice=Choice(names=("m",)), instructions="Be kind.", messages=messages, **{"tools": (TOOL,), **given})


def reply_of(text: str) -> Reply:
    return parse_reply(Reply(text=text, model="m", raw={"kept": 1}), question(UserMessage(text="?")))


def test_tools_are_described_in_the_prompt_and_the_reply_has_a_schema() -> None:
    asked = as_prompt(question(UserMessage(text="Read it.")))
    assert asked.tools == ()
    assert asked.instructions.startswith("Be kind.")
    assert '{"delegate": {"target": "…", "operation": "…", "parameters": {}}}' in asked.instructions
    assert "Hands out work." in asked.instructions
    assert asked.output_schema == reply_schema([TOOL])


@pytest.mark.parametrize(
    ("reply", "is_valid"),
    [
        ({"answer": "yes"}, True),
        ({"delegate": {"target": "w", "operation": "read", "parameters": {"path": "a"}}}, True),
        ({"delegate": {"target": "r", "parameters": {"anything": 1}}}, True),
        ({"delegate": {"target": "w", "operation": "read", "parameters": {}}}, False),
        ({"delegate": {"target": "w", "operation": "write", "parameters": {"path": "a"}}}, False),
        ({"answer": "yes", "delegate": {}}, False),
        ({"other": {}}, False),
        ({}, False),
    ],
)
def test_schema_allows_exactly_the_parameters_of_the_tool(reply: Any, is_valid: bool) -> None:
    assert jsonschema.Draft202012Validator(reply_schema([TOOL])).is_valid(reply) is is_valid


def test_earlier_calls_are_shown_in_the_requested_format() -> None:
    call = ToolCall(call_id="1", name="delegate", arguments={"target": "r", "parameters": {}})
    asked = as_prompt(
        question(
            UserMessage(text="Do it."), Reply(calls=(call, call), raw={"x": 1}),
            ToolResult(call_id="1", name="delegate", text="done"), ToolResult(call_id="2", name="delegate", text="no", is_error=True),
            Reply(text="There."), UserMessage(text="And now?"),
        )
    )  # fmt: skip
    said, called, results, answered, _ = asked.messages
    assert said == UserMessage(text="Do it.")
    assert isinstance(called, Reply)
    assert json.loads(called.text) == {"delegate": [call.arguments, call.arguments]}
    assert (called.calls, called.raw) == ((), None)
    assert results == UserMessage(text="Result of delegate:\ndone\n\nError of delegate:\nno")
    assert json.loads(answered.text) == {"answer": "There."}


@pytest.mark.parametrize("text", ["Just words.", '{"person": {"name": "x"}}', "[1, 2]", "{", "", '{"a": ' * 2000])
def test_other_text_is_a_plain_answer(text: str) -> None:
    reply = reply_of(text)
    assert (reply.text, reply.calls) == (text, ())


@given(st.text())
def test_no_reply_of_a_model_raises(text: str) -> None:
    reply_of(text)
    reply_of(f'{{"answer": "{text}')
    reply_of(f'{{"delegate": {text}')
