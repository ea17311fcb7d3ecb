"""Whose code stands still: the agent's, named by its own line; never remit's own, nor a library that remit called."""

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


def stand_still(*_: Any) -> Any:
    raise Caught(sys._getframe(1))


def frame_in(run: Callable[[], Any]) -> FrameType:
    try:
        run()
    except Caught as caught:
        return caught.frame
    raise AssertionError("it did not stand still")


def as_if_in(file: str, code: str) -> Callable[[Callable[..., Any]], Any]:
    """A function whose code claims to stand in `file`."""
    compiled: CodeType = compile(code, file, "exec")
    names: dict[str, Any] = {}
    exec(compiled, names)
    function: Callable[[Callable[..., Any]], Any] = names["function"]
    return function


def test_an_agents_own_line_is_named() -> None:
    frame = frame_in(lambda: stand_still())
    found = _frame_of_agent(frame)
    assert found is not None
    assert _place(found).startswith("test_watchdog.py:")


def test_a_library_that_an_agent_called_is_the_agents() -> None:
    frame = frame_in(lambda: json.loads("[1.5]", parse_float=stand_still))
    found = _frame_of_agent(frame)
    assert "json" in frame.f_code.co_filename
    assert found is not None
    assert _place(found).startswith("test_watchdog.py:")


def test_remits_own_code_is_left_alone_also_inside_a_library() -> None:
    inside = as_if_in(
        remit.engines.embedded.journal.__file__, "def function(inner):\n    import json\n    json.loads('[1.5]', parse_float=inner)\n"
    )
    assert _frame_of_agent(frame_in(lambda: inside(stand_still))) is None


def test_reading_an_agents_value_may_be_interrupted() -> None:
    class Slow:
        def __iter__(self) -> Any:
            stand_still()

    reading = as_if_in(remit.core.jsonable.__file__, "def function(inner):\n    inner()\n")
    assert _frame_of_agent(frame_in(lambda: reading(stand_still))) is not None
    assert _frame_of_agent(frame_in(lambda: list(Slow()))) is not None


def test_the_loops_own_code_is_left_alone() -> None:
    import asyncio.base_events

    loop = as_if_in(asyncio.base_events.__file__, "def function(inner):\n    inner()\n")
    assert _frame_of_agent(frame_in(lambda: loop(stand_still))) is None
    assert _frame_of_agent(None) is None
