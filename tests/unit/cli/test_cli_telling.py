"""Events in words, as they are listed at the prompt."""

from typing import Any

import pytest

from remit.cli.events import Teller, told
from remit.cli.render import at_the_prompt, money, spent
from remit.core.events import Event, EventKind

SESSION = "sess_1700000000_abcdef"


def event(kind: EventKind, **body: Any) -> Event:
    return Event(session_id=SESSION, number=1, at=0.0, kind=kind, body=body)


def chunk(value: Any) -> Event:
    return event(EventKind.DATA, chunk=value)


def progress(message: str) -> Event:
    return event(EventKind.PROGRESS, message=message)


def lines(*events: Event) -> list[str]:
    teller = Teller()
    return [text for one in events if (text := teller.tell(one))]


def tool(status: str, title: str = "ls -l") -> Event:
    return chunk({"tool": {"id": "1", "kind": "Bash", "title": title, "status": status}})


def test_structured_chunks_of_coding_agents_read_as_lines() -> None:
    assert told(tool("completed")) == "Bash: ls -l (completed)"
    asked = {"kind": "edit", "title": "a.py", "decision": "denied", "because": "nothing fits"}
    assert told(chunk({"permission": asked})) == "Permission denied for edit: a.py (nothing fits)."
    steps = [{"step": "Look", "status": "completed"}, {"step": "Write", "status": "in_progress"}]
    assert told(chunk({"plan": steps})) == "Plan: 1 of 2 done, now: Write"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": 1, "b": ["x"]}, '{"a":1,"b":["x"]}'),
        ({"tool": 5}, '{"tool":5}'),
        ({"plan": [1]}, '{"plan":[1]}'),
        ([1, None], "[1,null]"),
        (5, "5"),
        ("words", "words"),
    ],
)
def test_any_other_chunk_is_told_as_it_is(value: Any, text: str) -> None:
    assert told(chunk(value)) == text


def test_a_tools_call_is_told_once_whether_progress_or_chunk_comes_first() -> None:
    assert lines(progress("Bash: ls -l"), tool("completed")) == ["Bash: ls -l"]
    assert lines(tool("running"), progress("Bash: ls -l (running)"), tool("completed")) == ["Bash: ls -l (running)"]
    assert lines(tool("completed"), tool("completed", "pwd")) == ["Bash: ls -l (completed)", "Bash: pwd (completed)"]


def test_that_a_call_failed_or_was_denied_is_told_and_told_once() -> None:
    failed = "Bash: ls -l (failed: no such file)"
    assert lines(progress("Bash: ls -l"), progress(failed), tool("failed")) == ["Bash: ls -l", failed]
    assert lines(progress("Bash: ls -l"), tool("failed")) == ["Bash: ls -l", "Bash: ls -l (failed)"]
    asked = {"kind": "Bash", "title": "ls -l", "decision": "denied", "because": "not allowed"}
    denied = "Permission denied for Bash: ls -l (not allowed)."
    assert lines(chunk({"permission": asked}), progress(denied), tool("denied")) == [denied]


def test_progress_that_repeats_itself_is_told_each_time() -> None:
    assert lines(progress("tick"), progress("tick"), chunk("tick")) == ["tick"] * 3


def test_what_was_spent_is_told_in_words_and_nothing_is_left_out() -> None:
    assert told(event(EventKind.SPENT, tokens=1234, cost=0.000612)) == "1,234 tokens, 0.0006 spent so far"
    assert told(event(EventKind.SPENT, tokens=0, cost=0.0)) == ""
    assert lines(event(EventKind.SPENT, tokens=0, cost=0), event(EventKind.COMPLETE, result={})) == []
    assert (spent(1, 0.0), spent(0, 2.5), spent(0, 0.0)) == ("1 token", "2.50", "")


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0.00"), (12.5, "12.50"), (1.23456, "1.23"), (0.5, "0.50"), (0.03124, "0.0312"), (0.000612, "0.0006"), (0.0000034, "0.000003")],
)
def test_money_is_rounded_to_what_matters(amount: float, text: str) -> None:
    assert money(amount) == text


def test_a_cancel_is_told_as_a_sentence() -> None:
    body = {"source": "a person", "reason": "not needed."}
    assert told(event(EventKind.CANCEL, state="requested", **body)) == "Cancel requested by a person: not needed."
    assert told(event(EventKind.CANCEL, state="killed", **body)) == "Cancelled by a person: not needed; killed."
    assert told(event(EventKind.CANCEL, state="stopped", source="a person", reason="")) == "Cancelled by a person; stopped."
    assert "did not stop" in told(event(EventKind.CANCEL, state="abandoned", **body))


def test_advice_for_programs_is_translated_for_the_prompt() -> None:
    assert at_the_prompt(f"Delegate it again with resume={SESSION} to go on.") == f"Delegate it again with --resume {SESSION} to go on."
    assert at_the_prompt("Resume it (resume=SESSION).") == "Resume it (--resume SESSION)."
    assert at_the_prompt("my_resume=1 resume=yes") == "my_resume=1 resume=yes"
