"""The delegate tool answers any request with a result or a coded error."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from remit import Context, DelegateError, DelegateResult, DelegateTool, Remit, TaskState, agent
from remit.core.delegate_requests import json_text


class Span(BaseModel):
    first_line: int
    last_line: int | None = None


@agent("text.cut")
async def cut(text: str, span: Span, max_length: int = 5, how: Literal["head", "tail"] = "head") -> str:
    return text[:max_length]


@agent("text.join")
async def join(texts: list[str], put_between: str | None = None, times: float = 1) -> str:
    return (put_between or "").join(texts)


@agent("any")
async def anything(ctx: Context, **given: Any) -> Any:
    return given


@agent("bare")
async def bare() -> None:
    return None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["text", "any", "bare", "cut", "join", "text.cut", "worker", "", "Text"])
KNOWN = {
    "target": NAMES | JSON,
    "operation": NAMES | JSON,
    "parameters": st.dictionaries(
        st.sampled_from(["text", "span", "maxLength", "max_length", "how", "texts", "putBetween", "times", "x"]), JSON, max_size=4
    )
    | JSON,
    "timeout": st.integers(-5, 10**8) | JSON,
    "priority": st.sampled_from(["low", "HIGH", 0, 1, 4, 5, True]) | JSON,
}
ARGUMENTS = st.fixed_dictionaries({}, optional=KNOWN) | st.dictionaries(st.text(max_size=9), JSON, max_size=3) | JSON


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, DelegateTool]]:
    with asyncio.Runner() as loop:
        agents = [cut, join, anything, bare]
        remit = Remit.open(tmp_path_factory.mktemp("any"), agents=agents, settings={"builtin_agents": [], "policy_mode": "disabled"})
        loop.run(remit.__aenter__())
        yield loop, DelegateTool(remit)
        loop.run(remit.close())


@settings(max_examples=60)
@given(arguments=ARGUMENTS)
@example(arguments={"target": "any", "parameters": {"\ud800": "\udfff"}})
@example(arguments={"target": "any", "parameters": {"n": 10**5000}})
@example(arguments={"target": "any", "parameters": {"ctx": 1, "self": 2, "parameters": {}, "agent": 3}})
@example(arguments={"target": "text\0", "operation": "\ud800", "parameters": {}})
@example(arguments={"target": "any", "parameters": {}, "timeout": 10**400})
def test_any_arguments_give_a_result_or_a_coded_error(runner: tuple[asyncio.Runner, DelegateTool], arguments: Any) -> None:
    result = _outcome(*runner, arguments)
    if isinstance(result, DelegateError):
        assert result.code in {"INVALID_TARGET", "INVALID_OPERATION", "INVALID_PARAMETERS"}
        assert json.loads(json_text(result.to_dict()))["message"]
        return
    assert isinstance(result, DelegateResult)
    document = json.loads(result.to_json())
    assert document["success"] is (document["taskState"] == "COMPLETED") is (document["error"] is None)
    assert TaskState(document["taskState"]).is_terminal
    assert document["metadata"]["agentId"] in {"text.cut", "text.join", "any", "bare"}


def _outcome(loop: asyncio.Runner, tool: DelegateTool, arguments: Any) -> DelegateResult | DelegateError:
    try:
        return loop.run(tool.call(arguments))
    except DelegateError as error:
        return error
