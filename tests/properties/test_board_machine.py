"""The board compared with a simple model: random commands of two users, edits of TODO.md, and crashes.

No task or word is lost, no transition is illegal, and TODO.md is the rendering of state.json after every command.
"""

import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from remit import Board, NewTask, RemitError
from remit import TaskStatus as Status
from remit import abandon_tasks as abandon
from remit import add_task as record
from remit import archive_tasks as todo
from remit import recover_tasks as recover
from remit.board.state_file import read_state
from remit.board.task import check_move
from support.boards import draw
from support.lab import is_lab, rounds

LEGAL = {
    "not_started": "researching planning implementing blocked abandoned expanded",
    "researching": "researched blocked abandoned",
    "researched": "researching planning implementing blocked abandoned",
    "planning": "planned blocked abandoned",
    "planned": "revising implementing blocked abandoned",
    "revising": "revised blocked abandoned",
    "revised": "implementing revising blocked abandoned",
    "implementing": "completed partial blocked abandoned",
    "partial": "implementing completed revising planning abandoned",
    "blocked": "researching planning revising implementing abandoned",
    "abandoned": "",
    "expanded": "",
    "completed": "",
}
"""In TODO.md a person may skip the status in between."""
IN_PROGRESS = ("researching", "planning", "revising", "implementing")


def is_legal_for_a_person(old: str, new: str) -> bool:
    return new in LEGAL[old].split() or any(new in LEGAL[between].split() for between in LEGAL[old].split() if between in IN_PROGRESS)


class Killed(BaseException):
    """The simulated end of the process."""


@contextlib.contextmanager
def crash_at(number: int) -> Iterator[None]:
    """Raise `Killed` at this call that changes files."""
    left, before = [number], {name: getattr(os, name) for name in ("rename", "replace", "link", "unlink")}

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*args: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            return call(*args, **more)

        return instead

    for name, call in before.items():
        setattr(os, name, counted(call))
    try:
        yield
    finally:
        for name, call in before.items():
            setattr(os, name, call)


class BoardAndModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.boards = [Board(self.root), Board(self.root)]
        self.model: dict[int, str] = {}
        self.archived: dict[int, str] = {}
        self.words: dict[str, int | None] = {}
        """Words that were written, and their task; None means between tasks."""
        self.wishes: dict[int, str] = {}
        """Statuses that a person wrote into TODO.md and no command has read yet."""
        self.fresh: list[str] = []
        """Words of tasks that a person added there."""
        self.count = 0

    def teardown(self) -> None:
        self.folder.cleanup()

    def word(self) -> str:
        self.count += 1
        return f"kw{self.count}x"

    # ---- the model

    def state(self) -> Any:
        return read_state(self.boards[0].state_path.read_bytes(), "state.json").state

    def ran(self) -> None:
        """The command that has just run merges the edits first."""
        for number, wanted in self.wishes.items():
            if number in self.model and is_legal_for_a_person(self.model[number], wanted):
                self.model[number] = wanted
        for word in self.fresh:
            (found,) = [task for task in self.state().tasks if word in task.title]
            assert found.status is Status.NOT_STARTED
            self.words[word] = found.number
            self.model[found.number] = "not_started"
        self.wishes, self.fresh = {}, []

    # ---- commands

    @initialize()
    def begin(self) -> None:
        self.record_a_task(0, 0)

    @rule(who=st.integers(0, 1), at=st.just(0) | st.integers(1, 40))
    def record_a_task(self, who: int, at: int) -> None:
        """With `at`, the command dies at a system call; the next command of the other user finishes or reverts it."""
        word, number = self.word(), None
        with crash_at(at), contextlib.suppress(Killed):
            number = record(self.boards[who], NewTask(text=f"Task {word}", title=f"Title {word}")).task_number
        if at:
            self.boards[who] = Board(self.root)
            with self.boards[1 - who].change():
                pass
        self.ran()
        found = [task.number for task in self.state().tasks if word in task.title]
        assert number is None or found == [number]
        assert self.model.keys().isdisjoint(found)
        assert self.archived.keys().isdisjoint(found)
        for number in found:
            self.model[number] = "not_started"
            self.words[word] = number

    @rule(who=st.integers(0, 1), which=st.integers(0, 30), status=st.sampled_from(Status))
    def move(self, who: int, which: int, status: Status) -> None:
        number = self.some(which)
        if number is None:
            return
        try:
            with self.boards[who].change("moved") as draft:
                task = draft.state.task(number)
                check_move(number, task.status, status, reason="why")
                before = str(task.status)
                if status is Status.NOT_STARTED:
                    raise Killed  # only `recover` does that; here the body raises
                draft.state = draft.state.with_task(task.moved(status, at=draft.at, reason="why"))
        except (RemitError, Killed):
            return
        assert str(status) in LEGAL[before].split()
        self.ran()
        self.model[number] = str(status)

    @rule(who=st.integers(0, 1), which=st.integers(0, 30), is_back=st.booleans())
    def abandon_or_recover(self, who: int, which: int, is_back: bool) -> None:
        number = self.some(which, {**self.model, **(self.archived if is_back else {})})
        if number is None:
            return
        try:
            recover(self.boards[who], [number]) if is_back else abandon(self.boards[who], [number], "no longer")
        except RemitError:
            return
        self.ran()
        assert not is_back or {**self.model, **self.archived}[number] == "abandoned"
        self.archived.pop(number, None)
        self.model[number] = "not_started" if is_back else "abandoned"

    @rule(who=st.integers(0, 1))
    def archive(self, who: int) -> None:
        todo(self.boards[who], agreed=lambda _: True)
        self.ran()
        for number in [number for number, status in self.model.items() if status in ("completed", "abandoned")]:
            self.archived[number] = self.model.pop(number)

    # ---- the person

    def edit(self, change: Callable[[str], str]) -> bool:
        path = self.boards[0].todo_path
        before = path.read_text()
        after = change(before)
        path.write_text(after)
        past = time.time() - 60
        os.utime(path, (past, past))  # saved a while ago, so no reader waits for the rest
        return before != after

    def blocks(self, number: int, text: str) -> tuple[list[re.Match[str]], list[re.Match[str]]]:
        """Blocks of a task, and blocks that a person added with its number."""
        found = list(re.finditer(rf"(?ms)^### {number}\. .*?^---$", text))
        added = [one for one in found if any(f"Wish {word}\n" in one[0] for word in self.fresh)]
        return [one for one in found if one not in added], added

    def in_block(self, number: int, pattern: str, new: str) -> bool:
        """Replace once within the block of a task."""

        def change(text: str) -> str:
            for found in self.blocks(number, text)[0][:1]:
                return text[: found.start()] + re.sub(pattern, new, found[0], count=1) + text[found.end() :]
            return text

        return self.edit(change)

    @rule(which=st.integers(0, 30), status=st.sampled_from(Status))
    def person_sets_a_status(self, which: int, status: Status) -> None:
        number = self.some(which)
        if number is not None and self.in_block(
            number, r"- \*\*Status\*\*: .*", f"- **Status**: [{status.marker}]\n- **Blocking Reason**: why"
        ):
            self.wishes[number] = str(status)

    @rule(which=st.integers(0, 30))
    def person_adds_words_to_a_task(self, which: int) -> None:
        number, word = self.some(which), self.word()
        if number is not None and self.in_block(number, r"\n---$", f"\nMore {word}\n\n---"):
            self.words[word] = number

    @rule(where=st.integers(0, 30))
    def person_writes_between_tasks(self, where: int) -> None:
        word = self.word()

        def change(text: str) -> str:
            if not text.strip():  # they emptied it before: this would be in the place of what they had written there
                return text
            ends = [found.end() for found in re.finditer(r"(?m)^---$", text)]
            at = ends[where % len(ends)] if ends else len(text)
            return f"{text[:at]}\n\nNote {word}\n{text[at:]}"

        if self.edit(change):
            self.words[word] = None

    @rule(which=st.integers(0, 30))
    def person_removes_a_block(self, which: int) -> None:
        number = self.some(which)
        if number is None or self.wishes.get(number) or any(at == number for at in self.words_not_saved()):
            return
        if not self.blocks(number, self.boards[0].todo_path.read_text())[1]:  # otherwise the task would get a new title
            self.in_block(number, r"(?s).*", "")

    def words_not_saved(self) -> list[int | None]:
        saved = self.boards[0].state_path.read_text()
        return [at for word, at in self.words.items() if word not in saved]

    @rule(section=st.sampled_from(["High", "Medium", "Low"]), is_numbered=st.booleans())
    def person_adds_a_task(self, section: str, is_numbered: bool) -> None:
        word, text = self.word(), self.boards[0].todo_path.read_text()
        number = self.count % 7
        # In place of a removed block it would be a new title for that task.
        is_numbered = is_numbered and (number not in self.model or bool(self.blocks(number, text)[0]))
        heading = f"### {number}. Wish {word}" if is_numbered else f"### Wish {word}"
        if self.edit(lambda text: text.replace(f"## {section} Priority\n", f"## {section} Priority\n\n{heading}\nDo it.\n\n---\n", 1)):
            self.fresh.append(word)
            self.words[word] = None

    @precondition(lambda self: self.count % 3 == 0)
    @rule()
    def person_empties_the_file(self) -> None:
        """Only if it contains no unmerged edit."""
        if not (self.wishes or self.fresh or self.words_not_saved()):
            self.edit(lambda _: "")

    def some(self, which: int, among: dict[int, str] | None = None) -> int | None:
        numbers = sorted(among if among is not None else self.model)
        return numbers[which % len(numbers)] if numbers else None

    # ---- invariants

    @invariant()
    def nothing_is_lost(self) -> None:
        if not self.model and not self.archived:
            return
        data = json.loads(self.boards[0].state_path.read_text())
        archive = self.boards[0].archive_path
        archived_entries = json.loads(archive.read_text())["active_projects"] if archive.exists() else []
        text = self.boards[0].todo_path.read_text()
        assert {entry["project_number"]: entry["status"] for entry in data["active_projects"]} == self.model
        assert {entry["project_number"]: entry["status"] for entry in archived_entries} == self.archived
        everywhere = set(re.findall(r"kw\d+x", json.dumps([data, archived_entries]) + text))
        assert set(self.words) <= everywhere

    @invariant()
    def todo_is_rendered_after_each_command(self) -> None:
        """Reading includes edits made since, and writes nothing."""
        board = self.boards[1]
        if not board.state_path.exists():
            return
        text = board.todo_path.read_text()
        seen = board.look()
        assert board.todo_path.read_text() == text
        assert {task.number for task in seen.state.tasks} >= set(self.model)
        if not seen.notices and text:
            assert draw(self.state()) == text
        for task in seen.state.tasks:
            old = self.model.get(task.number, "not_started")
            assert str(task.status) == old or is_legal_for_a_person(old, str(task.status))


BoardAndModel.TestCase.settings = settings(max_examples=rounds(12, lab=2000), stateful_step_count=rounds(18, lab=50))
TestBoardAndModel = pytest.mark.timeout(7200 if is_lab() else 120)(BoardAndModel.TestCase)
