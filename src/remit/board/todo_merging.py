"""A person's edits of TODO.md taken over into the board (S6.1): what differs between the drawing they began from and what they left.

Pure. A task that was taken out is drawn again, a number is never given twice, text is never dropped. The lines of one task are
`todo_edits`' to judge.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from remit.board.task import Priority, State, Task, slug_of
from remit.board.todo_drawing import HEAD, Drawn, draw_placed, homeless
from remit.board.todo_edits import (
    KEPT,
    Edit,
    apply_dependencies,
    apply_description,
    apply_lines,
    apply_plain,
    apply_priority,
    apply_status,
    apply_title,
    bare,
)
from remit.board.todo_lines import one_line, plain
from remit.board.todo_reading import Block, Sheet, Written, read_block, read_sheet
from remit.board.todo_window import window
from remit.core.errors import Refused

_NEW = re.compile(r"new(?:\s+task)?\s*:\s*", re.IGNORECASE)
_LOOSE_NUMBER = re.compile(r"(?:task\s*)?#?\d+\s*[.:)–-]*\s*", re.IGNORECASE)
_CONFLICT = re.compile(r"^(?:<{7}|>{7})(?: |$)", re.MULTILINE)
_NAMED = 5
"""How many of the tasks that were taken out are told one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    state: State
    """With what the person did taken over."""
    taken: tuple[str, ...] = ()
    """What was taken over, a line each, for the person to read."""
    kept: tuple[str, ...] = ()
    """What could not be, and why and where it is kept, a line each."""


def merge(state: State, text: str, *, at: str, onto: State | None = None, taken_numbers: Collection[int] = ()) -> Merged:
    """The board with a person's edits: `text` is TODO.md as they left it, `draw(state)` what they began from.

    `onto`: the board as it has become since; the edits are applied there. `taken_numbers`: of the archive; a new task gets none of
    them, nor any below `next_number`. Raises `Refused` when the text has the marks of an unfinished git merge.
    """
    target = state if onto is None else onto
    drawn = draw_placed(state)
    text = plain(text)
    if text == drawn.text:
        return Merged(state=target)
    if "<<<<<<<" in text and len(_CONFLICT.findall(text)) > len(_CONFLICT.findall(drawn.text)):
        raise Refused(
            "specs/TODO.md has the marks of an unfinished merge (<<<<<<<): nothing was read from it, nothing was changed.",
            code="MERGE_CONFLICT",
            advice="Settle the merge in it, or delete specs/TODO.md: it is drawn again from state.json.",
        )
    if not text.strip():
        return Merged(state=target, kept=("TODO.md was empty: it is drawn again.",) if state.tasks else ())
    titles = {task.number: one_line(task.title) for task in state.tasks}
    given = _Given(state=state, target=target, at=at, taken_numbers=frozenset(taken_numbers))
    return _merged_in_part(given, drawn, text, titles) or _merged_whole(given, drawn, text, titles)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    state: State
    target: State
    at: str
    taken_numbers: frozenset[int]


def _merged_in_part(given: _Given, drawn: Drawn, text: str, titles: Mapping[int, str]) -> Merged | None:
    """From the part that was touched; None: read the whole."""
    part = window(drawn, text) if "\r" not in drawn.text and not homeless(given.state) else None
    if part is None:
        return None
    next_number = given.state.next_number
    base = read_sheet(part.base, titles, next_number, section=part.section)
    mine = read_sheet(part.mine, titles, next_number, section=part.section)
    here = {block.number for block in base.blocks}
    if any(block.number in titles and block.number not in here for block in mine.blocks):
        return None
    return _Merging(given, base, mine, before=part.before, after=part.after).merged()


def _merged_whole(given: _Given, drawn: Drawn, text: str, titles: Mapping[int, str]) -> Merged:
    next_number = given.state.next_number
    base, mine = read_sheet(drawn.text, titles, next_number), read_sheet(text, titles, next_number)
    is_cut = len(mine.blocks) < len(base.blocks) or any(not block.is_closed for block in mine.blocks[-1:])
    if is_cut and drawn.text.startswith(text.rstrip()):
        return Merged(state=given.target, kept=("TODO.md ended in the middle: nothing was changed in it, the rest is drawn again.",))
    return _Merging(given, base, mine).merged()


class _Merging:
    def __init__(self, given: _Given, base: Sheet, mine: Sheet, *, before: Sequence[int] = (), after: Sequence[int] = ()) -> None:
        """`before`, `after`: tasks above and below what was read, which nobody touched."""
        self.state = given.state
        self.target = given.target
        self.base = base
        self.mine = mine
        self.before = before
        self.after = after
        self.at = given.at
        self.taken_numbers = given.taken_numbers
        self.tasks = {task.number: task for task in self.target.tasks}
        self.next_number = max(self.target.next_number, self.state.next_number, 1 + max(self.taken_numbers, default=0))
        self.following: int | None = None
        """The number that the next new task without one gets."""
        self.taken: list[str] = []
        self.kept: list[str] = []
        self.stray: list[str] = []
        """Words about tasks that are gone."""
        self.known = {block.number: block for block in base.blocks if block.number is not None}
        self.numbers: list[int | None] = [None] * len(mine.blocks)
        """Which task each block of the person's came to be."""

    def merged(self) -> Merged:
        self._recognize()
        found = set(self.numbers)
        missing = [number for number in self.known if number not in found and number in self.tasks]
        for index, block in enumerate(self.mine.blocks):
            number = self.numbers[index]
            if number is not None:
                self._edit(self.known[number], block, is_last=not self.after and index == len(self.mine.blocks) - 1)
        fresh = [index for index, number in enumerate(self.numbers) if number is None]
        for index in fresh:
            self._add(index)
        self._tell_missing(missing)
        texts = self._texts(missing)
        tasks = self._ordered(missing)
        if not (self.taken or self.kept or self.stray):
            return Merged(state=self.target)
        state = replace(self.target, tasks=tasks, texts=texts, next_number=max(self.target.next_number, self._after_all(tasks)))
        return Merged(state=state, taken=tuple(self.taken), kept=tuple(self.kept))

    def _after_all(self, tasks: Sequence[Task]) -> int:
        return 1 + max((task.number for task in tasks), default=0)

    def _recognize(self) -> None:
        """Which block is which task: by number, and where a number stands twice or was changed, by its title."""
        claimed: dict[int, list[int]] = {}
        for index, block in enumerate(self.mine.blocks):
            if block.number is not None and block.number in self.known:
                claimed.setdefault(block.number, []).append(index)
        for number, indexes in claimed.items():
            strangeness = [(_strangeness(self.mine.blocks[index], self.known[number]), index) for index in indexes]
            self.numbers[min(strangeness)[1]] = number
        found = set(self.numbers)
        lost: dict[str, list[int]] = {}
        for number, block in self.known.items():
            if number not in found:
                lost.setdefault(block.title, []).append(number)
        for index, block in enumerate(self.mine.blocks):
            loose = _LOOSE_NUMBER.match(block.title) if block.title not in lost else None
            title = block.title[loose.end() :] if loose else block.title
            candidates = lost.get(title, []) if self.numbers[index] is None else []
            if len(candidates) == 1:
                block.title = title
                self.numbers[index] = candidates.pop()
                self.kept.append(f"Task {self.numbers[index]} keeps its number: numbers never change.")

    def _edit(self, base: Block, mine: Block, *, is_last: bool) -> None:
        section = self._moved_to(base, mine)
        if mine.lines == base.lines and mine.title == base.title and section is None:
            return
        if is_last and not mine.is_closed and "\n".join(base.lines).startswith("\n".join(mine.lines).rstrip()):
            self.kept.append(f"it ended in the middle of Task {base.number}, which is drawn again.")
            return
        number = base.number
        assert number is not None
        task = self.tasks.get(number)
        if task is None:
            self._keep_gone(number, base, mine)
            return
        edit = Edit(task, at=self.at, base=read_block(base.lines))
        self._apply(edit, read_block(mine.lines), mine.title, section, title_before=base.title)

    def _apply(self, edit: Edit, written: Written, title: str, section: Priority | None, *, title_before: str = "") -> None:
        apply_lines(edit, written)
        if not edit.is_new:
            apply_title(edit, title, title_before)
        apply_description(edit, written)
        apply_status(edit, written)
        apply_priority(edit, written, section)
        apply_plain(edit, written)
        line = written.fields.get("Dependencies")
        if line != edit.before.fields.get("Dependencies"):
            needs = {number: task.dependencies for number, task in self.tasks.items()}
            apply_dependencies(edit, written, needs, self.taken_numbers)
        self.tasks[edit.task.number] = edit.task
        self.taken += edit.taken
        self.kept += edit.kept

    def _moved_to(self, base: Block, mine: Block) -> Priority | None:
        """The section a person carried it to; not where a heading went missing, or a section of their own begins."""
        if mine.section is None or mine.section is base.section or base.section not in self.mine.headings:
            return None  # in a window all stand in one section
        return mine.section

    def _keep_gone(self, number: int, base: Block, mine: Block) -> None:
        before, after = set(base.lines), [line for line in mine.lines if line.strip()]
        words = " / ".join(line.strip() for line in after if line not in before)
        if mine.title != base.title:
            words = " / ".join(filter(None, (mine.title, words)))
        if words:
            self.stray.append(f"{KEPT}Task {number} is no longer on the board: {words.replace('-->', '-- >')} -->")
            self.kept.append(f"Task {number} is no longer on the board; what was changed in it is kept at the end of TODO.md.")

    def _add(self, index: int) -> None:
        block = self.mine.blocks[index]
        if block.number in self.known and self._is_copy(block):
            self.numbers[index] = block.number
            self.kept.append(f"Task {block.number} stood twice, word for word: it is drawn once.")
            return
        number = block.number
        if number is None or number < self.next_number or number in self.tasks or number in self.taken_numbers:
            number = self._next()
        title = one_line(_NEW.sub("", block.title, count=1) if _NEW.match(block.title) else block.title) or "Untitled"
        task = Task(number=number, title=title, slug=slug_of(title), created=self.at, priority=block.section or Priority.MEDIUM)
        self.numbers[index] = number
        instead = f" (the number {block.number} is taken)" if block.number not in (None, number) else ""
        self.taken.append(f"Task {number} is new: {title}{instead}")
        section = block.section
        self._apply(Edit(task, at=self.at, base=None), read_block(block.lines), title, section)

    def _next(self) -> int:
        """Above everything: also above the free numbers other new tasks have asked for."""
        if self.following is None:
            asked = (block.number for block in self.mine.blocks if block.number is not None and block.number >= self.next_number)
            self.following = max([self.next_number, *(1 + number for number in (*self.tasks, *asked))])
        self.following += 1
        return self.following - 1

    def _is_copy(self, block: Block) -> bool:
        first = next(one for one, number in zip(self.mine.blocks, self.numbers, strict=True) if number == block.number)
        return block.looks_like(first) or block.looks_like(self.known[block.number or 0])

    def _tell_missing(self, missing: Sequence[int]) -> None:
        for number in missing[:_NAMED]:
            self.kept.append(
                f"Task {number} was taken out of TODO.md: it is drawn again. To give it up: remit task --abandon {number} --reason WHY"
            )
        if len(missing) > _NAMED:
            self.kept.append(f"So were {len(missing) - _NAMED} more tasks, up to Task {missing[-1]}: all are drawn again.")

    def _texts(self, missing: Sequence[int]) -> dict[str, str]:
        """A person's own text, by where it stands now."""
        before = self.base.texts([block.number for block in self.base.blocks])
        after = {
            key: before[key] if key in before and bare(before[key]) == bare(text) else text
            for key, text in self.mine.texts(self.numbers).items()
        }
        self._keep_cut(before, after, missing)
        texts = dict(self.target.texts)
        if after != before:
            if self.target.texts == self.state.texts and not (self.before or self.after):
                texts = after
            else:
                texts |= {key: text for key, text in after.items() if before.get(key) != text}
                texts = {key: text for key, text in texts.items() if key in after or key not in before}
            self.taken.append("Your own text between the tasks")
        if texts.get("top") == HEAD:
            del texts["top"]
        if self.stray:
            texts["end:low"] = "\n\n".join(filter(None, (texts.get("end:low"), *self.stray)))
        return texts

    def _keep_cut(self, before: dict[str, str], after: dict[str, str], missing: Iterable[int]) -> None:
        """Text that went with a task or a section which is drawn again is drawn again too, unless it stands elsewhere now."""
        gone = {f"after:{number}" for number in missing}
        gone |= {f"{where}:{one}" for one in self.base.headings if one not in self.mine.headings for where in ("heading", "begin", "end")}
        everything = "\n\n".join(after.values())
        for key in gone & before.keys() - after.keys():
            if before[key] not in everything:
                after[key] = before[key]

    def _ordered(self, missing: Sequence[int]) -> tuple[Task, ...]:
        """As the person put them; what they did not see stays behind what it stood behind."""
        order = list(dict.fromkeys(number for number in self.numbers if number is not None and number in self.tasks))
        _put_back(order, missing, [block.number for block in self.base.blocks])
        order = [*(one for one in self.before if one in self.tasks), *order, *(one for one in self.after if one in self.tasks)]
        here = set(order)
        _put_back(
            order, [task.number for task in self.target.tasks if task.number not in here], [task.number for task in self.target.tasks]
        )
        place = {number: index for index, number in enumerate(order)}
        rank = {priority: index for index, priority in enumerate(Priority)}
        wanted = sorted(self.tasks.values(), key=lambda task: (rank[task.priority], place.get(task.number, len(place))))
        current = sorted((self.tasks[task.number] for task in self.target.tasks), key=lambda task: rank[task.priority])
        if [task.number for task in wanted] == [task.number for task in current]:
            return tuple(self.tasks[task.number] for task in self.target.tasks)
        old = {task.number: task.priority for task in self.target.tasks}
        if _stayed(wanted, old) != _stayed(current, old):
            self.taken.append("The order of the tasks")
        return tuple(wanted)


def _stayed(tasks: Iterable[Task], old: dict[int, Priority]) -> list[int]:
    """Those that are neither new nor moved to another section."""
    return [task.number for task in tasks if old.get(task.number) is task.priority]


def _strangeness(block: Block, known: Block) -> int:
    """How unlike the task's own block it is."""
    if block.looks_like(known):
        return 0
    return 1 if block.title == known.title else 2


def _put_back(order: list[int], numbers: Iterable[int], sequence: Sequence[int | None]) -> None:
    """Each behind the nearest before it in `sequence` that `order` has."""
    wanted = set(numbers)
    if not wanted:
        return
    has = set(order)
    followers: dict[int | None, list[int]] = {}
    anchor: int | None = None
    for number in sequence:
        if number in wanted and number is not None:
            followers.setdefault(anchor, []).append(number)
        elif number in has:
            anchor = number
    placed = list(followers.get(None, ()))
    for number in order:
        placed.append(number)
        placed += followers.get(number, ())
    order[:] = placed
