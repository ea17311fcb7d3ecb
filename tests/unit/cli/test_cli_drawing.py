"""Trees and words as people see them."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from remit.cli.events import Word, gist_of
from remit.cli.render import count, duration, one_line, size, wrapped
from remit.cli.tree import View, draw, forest
from remit.core.record import Record
from remit.core.result import Metadata, Return, Status
from remit.core.states import Priority, State
from remit.engine.peers import below, signs_with_children

NOW = 1_700_000_100.0


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


def test_a_line_tells_state_agent_progress_and_time_left() -> None:
    running = record(0, state=State.RUNNING)
    lines = drawn([running], words={running.session_id: Word(text="half done", fraction=0.5)})
    assert len(lines) == 1
    for part in ("worker", "000000", "10 s", "(50 s left)", "━━━", "half done"):
        assert part in lines[0]


def test_children_hang_below_their_caller() -> None:
    lines = drawn([record(0), record(1, 0, agent="middle"), record(2, 1, agent="leaf")])
    assert [line.find(name) > 0 for line, name in zip(lines, ("worker", "middle", "leaf"), strict=True)] == [True] * 3
    assert lines[1].index("middle") < lines[2].index("leaf")


def test_a_tree_of_thousands_fits_and_keeps_what_did_not_go_well_in_sight() -> None:
    many = [record(0, state=State.RUNNING), *(record(n, 0) for n in range(1, 5_000)), record(5_000, 0, State.FAILED, agent="bad")]
    lines = drawn(many, rows=20)
    assert len(lines) <= 20
    assert any("bad" in line for line in lines)
    assert "more (" in lines[1]
    assert "completed" in lines[1]


def test_the_latest_are_kept_in_sight_and_the_old_ones_folded() -> None:
    many = [record(0, state=State.RUNNING), *(record(n, 0) for n in range(1, 40)), record(40, 0, State.RUNNING)]
    lines = drawn(many, rows=24, is_moving=True)
    assert "… and 36 more (36 completed)" in lines[1]
    assert [f"{number:06}" in line for number, line in zip(range(37, 41), lines[2:], strict=True)] == [True] * 4


def test_while_things_move_what_runs_and_what_failed_stays_in_sight() -> None:
    many = [record(n, 0, State.RUNNING if n % 2 else State.FAILED) for n in range(1, 9)]
    lines = drawn([record(0, state=State.RUNNING), *many, *(record(n, 0) for n in range(9, 30))], rows=24, is_moving=True)
    assert len(lines) == 1 + 1 + 8 + 3
    assert "… and 18 more (18 completed)" in lines[1]


def test_a_value_is_shown_where_a_function_said_nothing_but_that() -> None:
    metadata = Metadata(session_id="s", agent_type="worker", delegation_depth=1, delegation_path=("worker",), duration_seconds=0.1)
    done = Return(status=Status.COMPLETED, summary="worker finished.", metadata=metadata, data={"n": 5})
    assert gist_of(done) == '{"n":5}'
    assert gist_of(replace(done, summary="Counted.")) == "Counted."


def test_what_nobody_runs_any_more_is_marked_in_the_tree() -> None:
    left = record(0, state=State.RUNNING)
    assert "its process is gone" in drawn([left], gone={left.session_id})[0]


def test_lines_are_broken_between_words_and_keep_their_indent() -> None:
    text = "  a settled delegation with a path/that-is-long/and-whole.md"
    assert wrapped(text, 30).splitlines() == ["  a settled delegation with a", "  path/that-is-long/and-whole.md"]
    assert wrapped("  short   as it is", 30) == "  short   as it is"


def test_what_completed_is_folded_up_first() -> None:
    records = [record(0, state=State.RUNNING)]
    for group in range(1, 6):
        records.append(record(group, 0, agent="group"))
        records += [record(group * 100 + n, group, agent="leaf") for n in range(10)]
    lines = drawn(records, rows=20)
    assert not any("leaf" in line for line in lines)
    assert sum("(+ 10 delegations below)" in line for line in lines) == 5


def test_words_of_agents_cannot_drive_the_terminal() -> None:
    assert "\x1b" not in one_line("\x1b[2Jgone\x07 \n two")
    running = replace(record(0, state=State.RUNNING))
    shown = "\n".join(drawn([running], words={running.session_id: Word(text="\x1b]0;title\x07[bold]x")}))
    assert "\x1b]" not in shown
    assert "[bold]x" in shown


def test_long_words_are_shortened_visibly() -> None:
    assert one_line("a" * 200, 10) == "a" * 9 + "…"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.004, "0.00 s"), (0.42, "0.42 s"), (3.21, "3.2 s"), (42, "42 s"), (245, "4 m 05 s"), (7380, "2 h 03 m"), (273_600, "3 d 4 h")],
)
def test_durations_are_told_as_people_do(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_sizes_and_counts_are_told_as_people_do() -> None:
    assert [size(n) for n in (0, 999, 1_500, 250_000, 3_000_000, 5e9)] == ["0 B", "999 B", "1.5 kB", "250 kB", "3.0 MB", "5.0 GB"]
    assert [count(1, "file"), count(2, "process"), count(3, "entry"), count(1200, "line")] == [
        "1 file",
        "2 processes",
        "3 entries",
        "1,200 lines",
    ]


def test_below_gives_a_delegation_and_all_under_it_alone() -> None:
    tree = [record(0), record(1, 0), record(2, 0), record(3, 1)]
    assert [r.session_id[-1] for r in below(tree, tree[1].session_id)] == ["1", "3"]


def test_a_sign_of_a_child_counts_for_its_callers() -> None:
    tree = [record(0), record(1, 0, depth=2), record(2, 1, depth=3)]
    heard = signs_with_children(tree, {tree[0].session_id: 1.0, tree[1].session_id: 2.0, tree[2].session_id: 9.0})
    assert list(heard.values()) == [9.0, 9.0, 9.0]
