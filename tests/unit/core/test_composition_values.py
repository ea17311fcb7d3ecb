"""Compositions as values: JSON form, references, and validation before anything runs."""

import json
from typing import Any

import pytest

from remit import Misused, call, each, first, parallel, sequence
from remit.core.composition import composition_from
from remit.core.references import point_into

FLOW = sequence(
    call("files", pattern="*.py", timeout=30),
    reviews=each("reviewer", over="0#/files", into="path", limit=4, need="any"),
    checks=parallel(call("lint"), tests=first("fast", call("slow", n={"$": "reviews#/0"})), limit=2, need=1),
    notes=call("writer", notes={"$": "checks"}, literal={"$$": {"$": "x"}}),
    result="notes#/text",
)


def test_json_form_round_trips() -> None:
    document = json.loads(json.dumps(FLOW.to_dict()))
    assert composition_from(document) == FLOW  # which also checks it
    assert list(document) == ["sequence", "result"]
    assert document["sequence"][0] == {"call": "files", "parameters": {"pattern": "*.py"}, "timeout": 30}


def test_composition_is_a_call_of_compose_run() -> None:
    request = call(FLOW, timeout=1800, budget={"cost": 5})
    assert (request.agent, request.parameters, request.timeout) == ("compose.run", FLOW.to_dict(), 1800)
    with pytest.raises(Misused, match="takes options, not 'path'"):
        call(FLOW, path="x")


def _nested(levels: int) -> dict[str, Any]:
    step: dict[str, Any] = {"call": "a"}
    for _ in range(levels):
        step = {"sequence": [step]}
    return step


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "exactly one of call, sequence, parallel, each, first"),
        ({"sequence": []}, "a list of steps with at least one"),
        ({"sequence": ["a", {"call": "b", "parallel": []}]}, "Step 1: a step has exactly one of"),
        ({"sequence": ["a", 5]}, "Step 1: a step is an object, not 5"),
        ({"sequence": [{"call": "a", "timout": 3}]}, "Step 0: unknown key 'timout'"),
        ({"sequence": [{"call": ""}]}, "Step 0: An agent is named by a string"),
        ({"sequence": [{"call": "a", "id": "item"}]}, "Step 0: 'item' cannot be the id"),
        ({"sequence": [{"call": "a", "id": "x"}, {"call": "a", "id": "x"}]}, r"Step 1 \(x\): two steps have the id 'x'"),
        ({"sequence": [{"call": "a", "parameters": {"x": {"$": "0"}}}]}, "Step 0: it refers to step 0, but no step comes before it"),
        (
            {"sequence": ["a", {"call": "b", "parameters": {"x": {"$": "7"}}}]},
            "Step 1: it refers to step 7, but only steps up to 0 come before it",
        ),
        ({"sequence": ["a", {"call": "b", "parameters": {"x": [{"$": "fils"}]}}]}, "Step 1: it refers to 'fils', which is not the id"),
        (
            {"parallel": [{"call": "a", "id": "x"}, {"call": "b", "parameters": {"x": {"$": "x"}}}]},
            "Step 1: it refers to 'x', which has not",
        ),
        ({"sequence": [{"first": [{"call": "a", "id": "x"}]}, {"call": "b", "parameters": {"y": {"$": "x"}}}]}, "Step 1: it refers to 'x'"),
        ({"call": "b", "parameters": {"x": {"$": "0", "y": 1}}}, r"\$ must be the only key"),
        ({"call": "b", "parameters": {"x": {"$": "0#files"}}}, "must begin with /"),
        ({"call": "b", "parameters": {"x": {"$": None}}}, "a reference is text, not None"),
        ({"call": "b", "parameters": {"x": {"$": "item"}}}, "`item` exists only inside `each`"),
        ({"call": "b", "parameters": {"x": {"$": "input#/x"}}}, "the input 'x', which is not given"),
        ({"each": "a", "into": "x"}, "each needs `over`"),
        ({"each": "a", "over": 3.5, "into": "x"}, "over is a reference or a list"),
        ({"each": "a", "over": [1]}, "no step inside takes the item"),
        ({"each": {"sequence": ["a"]}, "over": [1], "into": "x"}, "into needs a call"),
        ({"each": {"call": "a", "parameters": {"x": 1}}, "over": [1], "into": "x"}, "has the parameter 'x' already"),
        ({"parallel": ["a"], "need": 2}, "need is 2, but there are 1 steps"),
        ({"sequence": ["a"], "result": "1"}, "result: it refers to step 1"),
        ({"parallel": ["a"] * 1001}, "at most 1000 steps"),
        (_nested(30), "at most 20 levels"),
    ],
)
def test_invalid_composition_is_refused_with_the_step_named(document: dict[str, Any], message: str) -> None:
    with pytest.raises(Misused, match=message):
        composition_from(document)


def test_inner_steps_may_refer_to_steps_that_have_ended() -> None:
    inner = sequence(call("c", x={"$": "a"}), call("d", x={"$": "0"}))
    for flow in (
        sequence(parallel(a=call("a"), b=call("b")), inner, call("e", x={"$": "b"}, y={"$": "1"}, z={"$": "sess_20251226_abc123"})),
        each(sequence(one=call("a", x={"$": "item#/k"}), two=call("b", x={"$": "one"})), over=[{"k": 1}]),
    ):
        assert composition_from(flow.to_dict()) == flow
    composition_from({**sequence(call("a", x={"$": "input#/x/0"})).to_dict(), "input": {"x": [1]}})


def test_pointers_follow_rfc_6901_and_report_missing_targets() -> None:
    data = {"a/b": {"m~n": [10, 20]}, "": 7, "0": "zero"}
    assert [point_into(data, one) for one in ("", "/a~1b/m~0n/1", "/", "/0")] == [data, 20, 7, "zero"]
    for pointer in ("/a", "/a~1b/m~0n/2", "/a~1b/m~0n/-", "/a~1b/m~0n/x", "/0/1"):
        with pytest.raises(Misused, match="leads nowhere at"):
            point_into(data, pointer)
