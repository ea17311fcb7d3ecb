"""Views of the board: unmet dependencies, terminal of any width, SVG, HTML page. Titles are untrusted text."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from remit import Board, BoardState, Misused, Task
from remit import TaskPriority as Priority
from remit import TaskStatus as Status
from remit.board import claims
from remit.board.picture import draw, page
from remit.board.view import TaskState, View, chosen, graph_of, view_of
from remit.cli.board import print_board
from support.boards import board_with

HOSTILE = "</text></svg><script>alert(1)</script><img src=x onerror=alert(2)> \"&' ]]> <!-- \x00\x1b[31m"
SVG = "{http://www.w3.org/2000/svg}"


def task(number: int, *dependencies: int, title: str = "", status: Status = Status.NOT_STARTED, **more: object) -> Task:
    return Task(number=number, title=title or f"Task {number}", slug="t", dependencies=dependencies, status=status, **more)  # type: ignore[arg-type]


@pytest.fixture
def view(tmp_path: Path) -> View:
    return view_of(
        board_with(
            tmp_path,
            task(1, status=Status.COMPLETED),
            task(2, 1, priority=Priority.HIGH, language="lean"),
            task(3, 2, status=Status.PLANNED),
            task(4, status=Status.BLOCKED, blocking_reason="no key"),
            task(5, status=Status.RESEARCHING),
            task(6, 7),
            task(7, 6),
        )
    )


def test_terminal_shows_next_commands_and_why_tasks_wait(view: View, capsys: pytest.CaptureFixture[str]) -> None:
    print_board(view)
    text = capsys.readouterr().out
    assert re.search(r"! 2  \[NOT STARTED\]  Task 2 +→ remit research 2", text)
    assert re.search(r"3  \[PLANNED\] .* waits for 2", text)
    assert re.search(r"4  \[BLOCKED\] .* no key", text)
    assert re.search(r"5  \[RESEARCHING\] .* → remit research 5", text)
    assert text.splitlines()[0] == "7 tasks: 1 stopped · 1 ready · 3 waiting · 1 blocked · 1 done"


def test_running_command_of_a_task_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    board = board_with(tmp_path, task(1, status=Status.RESEARCHING))
    with claims.claim(board, 1, "research", seconds=60) as claim:
        claim.name_session("sess_1700000000_abc123")
        seen = view_of(board)
        assert seen.states[1] is TaskState.RUNNING
        print_board(seen)
        assert re.search(r"research · 0\.\d\d s · abc123", capsys.readouterr().out)
        assert seen.to_dict()["tasks"][0]["running"]["command"] == "research"


def test_filters_select_tasks(view: View) -> None:
    def numbers(status: str) -> list[int]:
        return sorted(one.number for one in chosen(view, status).tasks)

    assert numbers(status="ready") == [2]
    assert numbers(status="planned, [BLOCKED]") == [3, 4]
    assert numbers(status="waiting") == [3, 6, 7]
    with pytest.raises(Misused, match="Unknown status 'nope'"):
        numbers(status="nope")


def test_dependency_is_met_when_it_is_completed_or_archived() -> None:
    state = BoardState(tasks=(task(1, status=Status.COMPLETED), task(2, 1, 90), task(3, 2), task(4, 91), task(5, 99)))
    graph = graph_of(state, {90: Status.COMPLETED, 91: Status.ABANDONED})
    assert [graph.unmet(one) for one in state.tasks] == [(), (), (2,), (91,), (99,)]


def test_dependency_on_a_divided_task_waits_for_its_parts() -> None:
    parts = (task(2, parent=1), task(3, parent=1))
    state = BoardState(tasks=(task(1, status=Status.EXPANDED), *parts, task(4, 1)))
    assert graph_of(state).unmet(task(4, 1)) == (1,)
    done = state
    for part, status in zip(parts, (Status.COMPLETED, Status.ABANDONED), strict=True):
        done = done.with_task(replace(part, status=status))
    assert graph_of(done).unmet(task(4, 1)) == ()


def test_no_title_injects_markup_into_a_picture_or_a_page() -> None:
    hostile = [task(number, *range(1, number), title=HOSTILE, status=Status.BLOCKED, blocking_reason=HOSTILE) for number in (1, 2)]
    seen = _view(*hostile)
    root = ET.fromstring(draw(seen, HOSTILE))
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "title", "style", "defs", "marker", "path", "rect", "text", "g", "tspan",
    }  # fmt: skip
    assert not [name for element in root.iter() for name in element.attrib if name.lower().startswith("on") or "href" in name]
    written = page(seen, HOSTILE)
    assert "<script" not in written
    assert "<img" not in written


def test_picture_shows_every_task_and_arrow(view: View) -> None:
    root = ET.fromstring(draw(view, "Tasks of it"))
    texts = [text for element in root.iter(f"{SVG}text") if (text := "".join(element.itertext()))]
    assert {f"Task {number}" for number in range(1, 8)} <= set(texts)
    arrows = [str(element.findtext(f"{SVG}title")) for element in root.iter(f"{SVG}path") if element.get("class")]
    assert sorted(arrows) == ["2 waits for 1", "3 waits for 2", "6 waits for 7", "7 waits for 6"]
    assert "4 · blocked · blocked" in texts


def _view(*tasks: Task) -> View:
    """A view without files, so that titles which no file can contain are drawn too."""
    from remit.board.board import Snapshot

    class Unwritten(Board):
        def look(self) -> Snapshot:
            return Snapshot(state=BoardState(tasks=tasks))

    return view_of(Unwritten(Path("/nowhere")))
