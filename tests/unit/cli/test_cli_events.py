"""Events as text, and trees of delegations."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from remit import Event, EventKind, Metadata, Priority, Record, Return, State, Status
from remit.cli.events import EventText, Word, event_text, gist_of
from remit.cli.render import at_the_prompt, count, duration, money, one_line, size, spent, wrapped
from remit.cli.tree import View, draw, forest
from remit.system.liveness import signs_with_children

SESSION = "sess_1700000000_abcdef"
NOW = 1_700_000_100.0
STEPS = [{"step": "Look", "status": "completed"}, {"step": "Write", "status": "in_progress"}]
ASKED = {"kind": "Bash", "title": "ls -l", "decision": "denied", "because": "not allowed"}
DENIED = "Permission denied for Bash: ls -l (not allowed)."


def event(kind: EventKind, **body: Any) -> Event:
    return Event(session_id=SESSION, number=1, at=0.0, kind=kind, body=body)


def chunk(value: Any) -> Event:
    return event(EventKind.DATA, chunk=value)


def progress(message: str) -> Event:
    return event(EventKind.PROGRESS, message=message)


def tool(status: str, title: str = "ls -l") -> Event:
    return chunk({"tool": {"id": "1", "kind": "Bash", "title": title, "status": status}})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"tool": {"kind": "Bash", "title": "ls -l", "status": "completed"}}, "Bash: ls -l (completed)"),
        ({"permission": ASKED}, DENIED),
        ({"plan": STEPS}, "Plan: 1 of 2 done, now: Write"),
        ({"a": 1, "b": ["x"]}, '{"a":1,"b":["x"]}'),
        ({"tool": 5}, '{"tool":5}'),
        ({"plan": [1]}, '{"plan":[1]}'),
        ([1, None], "[1,null]"),
        (5, "5"),
        ("words", "words"),
    ],
)
def test_chunks_of_coding_agents_are_rendered_as_lines(value: Any, text: str) -> None:
    assert event_text(chunk(value)) == text


@pytest.mark.parametrize(
    ("events", "lines"),
    [
        ([progress("Bash: ls -l"), tool("completed")], ["Bash: ls -l"]),
        ([tool("running"), progress("Bash: ls -l (running)"), tool("completed")], ["Bash: ls -l (running)"]),
        ([tool("completed"), tool("completed", "pwd")], ["Bash: ls -l (completed)", "Bash: pwd (completed)"]),
        ([progress("Bash: ls -l"), tool("failed")], ["Bash: ls -l", "Bash: ls -l (failed)"]),
        ([chunk({"permission": ASKED}), progress(DENIED), tool("denied")], [DENIED]),
        ([progress("tick"), progress("tick"), chunk("tick")], ["tick"] * 3),
        ([event(EventKind.SPENT, tokens=0, cost=0), event(EventKind.COMPLETE, result={})], []),
    ],
)
def test_tool_call_is_printed_once_unless_it_fails(events: list[Event], lines: list[str]) -> None:
    text = EventText()
    assert [words for one in events if (words := text.render(one))] == lines


def test_cancel_and_spending_are_rendered() -> None:
    body = {"source": "a person", "reason": "not needed."}
    assert event_text(event(EventKind.CANCEL, state="requested", **body)) == "Cancel requested by a person: not needed."
    assert event_text(event(EventKind.CANCEL, state="killed", **body)) == "Cancelled by a person: not needed; killed."
    assert "did not stop" in event_text(event(EventKind.CANCEL, state="abandoned", **body))
    assert event_text(event(EventKind.SPENT, tokens=1234, cost=0.000612)) == "1,234 tokens, 0.0006 spent so far"
    assert (spent(1, 0.0), spent(0, 2.5), spent(0, 0.0)) == ("1 token", "2.50", "")


def test_amounts_and_durations_are_formatted() -> None:
    amounts = (0, 12.5, 1.23456, 0.5, 0.03124, 0.000612, 0.0000034)
    assert [money(one) for one in amounts] == ["0.00", "12.50", "1.23", "0.50", "0.0312", "0.0006", "0.000003"]
    spans = (0.004, 0.42, 3.21, 42, 245, 7380, 273_600)
    assert [duration(one) for one in spans] == ["0.00 s", "0.42 s", "3.2 s", "42 s", "4 m 05 s", "2 h 03 m", "3 d 4 h"]
    assert [size(n) for n in (0, 999, 1_500, 250_000, 3_000_000, 5e9)] == ["0 B", "999 B", "1.5 kB", "250 kB", "3.0 MB", "5.0 GB"]
    assert [count(1, "file"), count(2, "process"), count(3, "entry")] == ["1 file", "2 processes", "3 entries"]
    assert at_the_prompt(f"Delegate it with resume={SESSION} again.") == f"Delegate it with --resume {SESSION} again."
    assert at_the_prompt("my_resume=1 resume=yes") == "my_resume=1 resume=yes"
    text = "  a settled delegation with a path/that-is-long/and-whole.md"
    assert wrapped(text, 30).splitlines() == ["  a settled delegation with a", "  path/that-is-long/and-whole.md"]
    assert one_line("a" * 200, 10) == "a" * 9 + "…"


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


def test_data_is_shown_if_the_summary_is_generated() -> None:
    metadata = Metadata(session_id="s", agent_type="worker", delegation_depth=1, delegation_path=("worker",), duration_seconds=0.1)
    done = Return(status=Status.COMPLETED, summary="worker finished.", metadata=metadata, data={"n": 5})
    assert gist_of(done) == '{"n":5}'
    assert gist_of(replace(done, summary="Counted.")) == "Counted."


def test_delegation_without_a_process_is_marked() -> None:
    left = record(0, state=State.RUNNING)
    assert "its process is gone" in drawn([left], gone={left.session_id})[0]


def test_completed_subtrees_are_folded_first() -> None:
    records = [record(0, state=State.RUNNING)]
    for group in range(1, 6):
        records.append(record(group, 0, agent="group"))
        records += [record(group * 100 + n, group, agent="leaf") for n in range(10)]
    lines = drawn(records, rows=20)
    assert not any("leaf" in line for line in lines)
    assert sum("(+ 10 delegations below)" in line for line in lines) == 5


def test_agent_text_cannot_control_the_terminal() -> None:
    assert "\x1b" not in one_line("\x1b[2Jgone\x07 \n two")
    running = replace(record(0, state=State.RUNNING))
    shown = "\n".join(drawn([running], words={running.session_id: Word(text="\x1b]0;title\x07[bold]x")}))
    assert "\x1b]" not in shown
    assert "[bold]x" in shown


def test_sign_of_life_of_a_child_counts_for_its_callers() -> None:
    tree = [record(0), record(1, 0, depth=2), record(2, 1, depth=3)]
    heard = signs_with_children(tree, {tree[0].session_id: 1.0, tree[1].session_id: 2.0, tree[2].session_id: 9.0})
    assert list(heard.values()) == [9.0, 9.0, 9.0]
