"""Events as text, and trees of delegations."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from remit import Event, EventKind, Priority, Record, State
from remit.cli.events import Word, event_text
from remit.cli.render import one_line
from remit.cli.tree import View, draw, forest

NOW = 1_700_000_100.0


TOOL = {"id": "1", "kind": "Bash", "title": "ls -l", "status": "completed"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"tool": TOOL}, ""),
        ({"permission": {"kind": "Bash", "title": "ls -l", "decision": "denied", "because": "not allowed"}}, ""),
        ({"plan": [{"step": "Look", "status": "completed"}]}, ""),
        ({"stream": "stdout", "text": "one\n"}, "one"),
        ({"a": 1, "b": ["x"]}, '{"a":1,"b":["x"]}'),
        ({"tool": 5}, '{"tool":5}'),
        ({"plan": [1]}, '{"plan":[1]}'),
        ([1, None], "[1,null]"),
        (5, "5"),
        ("words", "words"),
    ],
)
def test_chunks_are_rendered_as_lines_unless_a_progress_message_says_the_same(value: Any, text: str) -> None:
    chunk = Event(session_id="sess_1700000000_abcdef", number=1, at=0.0, kind=EventKind.DATA, body={"chunk": value})
    assert event_text(chunk) == text


def record(number: int, parent: int | None = None, state: State = State.COMPLETED, agent: str = "worker", depth: int = 1) -> Record:
    name = f"sess_1700000000_{number:06}"
    return Record(
        session_id=name,
        root_id="sess_1700000000_000000",
        parent_id=None if parent is None else f"sess_1700000000_{parent:06}",
        depth=depth,
        path=("orchestrator", agent),
        agent=agent,
        parameters={},
        caller="orchestrator",
        priority=Priority.NORMAL,
        state=state,
        created_at=NOW - 10,
        started_at=NOW - 10,
        timeout_seconds=60,
        deadline_at=NOW + 50,
        owner="1-abc",
    )


def drawn(records: list[Record], **view: object) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=100, markup=False)
    for root in forest(records):
        console.print(draw(root, View(now=NOW, **view)))  # type: ignore[arg-type]
    return out.getvalue().splitlines()


def test_line_shows_state_agent_progress_and_time_left() -> None:
    running = record(0, state=State.RUNNING)
    lines = drawn([running], words={running.session_id: Word(text="half done", fraction=0.5)})
    assert len(lines) == 1
    for part in ("worker", "000000", "10 s", "(50 s left)", "━━━", "half done"):
        assert part in lines[0]


def test_tree_of_thousands_fits_and_shows_failures() -> None:
    many = [record(0, state=State.RUNNING), *(record(n, 0) for n in range(1, 5_000)), record(5_000, 0, State.FAILED, agent="bad")]
    lines = drawn(many, rows=20)
    assert len(lines) <= 20
    assert any("bad" in line for line in lines)
    assert "more (" in lines[1]
    assert "completed" in lines[1]


def test_delegation_without_a_process_is_marked() -> None:
    left = record(0, state=State.RUNNING)
    assert "its process is gone" in drawn([left], gone={left.session_id})[0]


def test_agent_text_cannot_control_the_terminal() -> None:
    assert "\x1b" not in one_line("\x1b[2Jgone\x07 \n two")
    running = replace(record(0, state=State.RUNNING))
    shown = "\n".join(drawn([running], words={running.session_id: Word(text="\x1b]0;title\x07[bold]x")}))
    assert "\x1b]" not in shown
    assert "[bold]x" in shown
