"""Which code blocks the event loop: the agent's line is named, never remit's or a library that remit called."""

import json
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import remit.core.jsonable
import remit.engines.embedded.journal
from remit.engines.embedded.deadlines import _frame_of_agent, _place


class Caught(Exception):
    def __init__(self, frame: FrameType) -> None:
        self.frame = frame


def block(*_: Any) -> Any:
    raise Caught(sys._getframe(1))


def frame_in(run: Callable[[], Any]) -> FrameType:
    try:
        run()
    except Caught as caught:
        return caught.frame
    raise AssertionError("it did not block")


def as_if_in(file: str, code: str) -> Callable[[Callable[..., Any]], Any]:
    """A function whose code claims to be in `file`."""
    compiled: CodeType = compile(code, file, "exec")
    names: dict[str, Any] = {}
    exec(compiled, names)
    function: Callable[[Callable[..., Any]], Any] = names["function"]
    return function


def test_line_of_the_agent_is_named() -> None:
    frame = frame_in(lambda: block())
    found = _frame_of_agent(frame)
    assert found is not None
    assert _place(found).startswith("test_watchdog.py:")


def test_library_called_by_an_agent_counts_as_the_agent() -> None:
    frame = frame_in(lambda: json.loads("[1.5]", parse_float=block))
    found = _frame_of_agent(frame)
    assert "json" in frame.f_code.co_filename
    assert found is not None
    assert _place(found).startswith("test_watchdog.py:")


def test_code_of_remit_is_never_blamed_even_inside_a_library() -> None:
    inside = as_if_in(
        remit.engines.embedded.journal.__file__, "def function(inner):\n    import json\n    json.loads('[1.5]', parse_float=inner)\n"
    )
    assert _frame_of_agent(frame_in(lambda: inside(block))) is None


def test_reading_a_value_of_an_agent_may_be_interrupted() -> None:
    class Slow:
        def __iter__(self) -> Any:
            block()

    reading = as_if_in(remit.core.jsonable.__file__, "def function(inner):\n    inner()\n")
    assert _frame_of_agent(frame_in(lambda: reading(block))) is not None
    assert _frame_of_agent(frame_in(lambda: list(Slow()))) is not None


def test_code_of_the_event_loop_is_never_blamed() -> None:
    import asyncio.base_events

    loop = as_if_in(asyncio.base_events.__file__, "def function(inner):\n    inner()\n")
    assert _frame_of_agent(frame_in(lambda: loop(block))) is None
    assert _frame_of_agent(None) is None
