"""Merges a person's edits of TODO.md into the board: the difference between the original drawing and the edited text.

Pure. A removed task is drawn again, a number is never reused, text is never dropped. An edit that cannot be applied is reported in a
sentence and kept in the block as a comment, `<!-- remit kept: … -->`."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from remit.board.task import IN_PROGRESS, MOVES, NEED_REASON, Priority, State, Status, Task, is_legal, slug_of, status_of
from remit.board.todo import HEAD, Block, BlockFields, Sheet, draw, one_line, plain, read_block, read_sheet
from remit.core.cycles import shortest_cycle
from remit.core.errors import Misused, Refused
from remit.core.text import list_some, shorten

KEPT = "<!-- remit kept: "
_NUMBERS = re.compile(r"#?\b(\d{1,6})\b")
_FILLING = re.compile(r"\b(?:tasks?|and|none)\b|[\s,;&]+", re.IGNORECASE)
_SHOWN = 120
_LOOSE_NUMBER = re.compile(r"(?:task\s*)?#?\d+\s*[.:)–-]*\s*", re.IGNORECASE)
_CONFLICT = re.compile(r"^(?:<{7}|>{7})(?: |$)", re.MULTILINE)


# ---- the edits of one task


class Edit:
    """One task while the changes of its block are applied."""

    def __init__(self, task: Task, *, at: str, base: BlockFields | None) -> None:
        """`base`: its block before; None: the task is new."""
        self.task = task
        self.at = at
        self.before = base if base is not None else BlockFields(fields={})
        self.is_new = base is None
        self.taken: list[str] = []
        self.kept: list[str] = []

    def apply(self, written: BlockFields, section: Priority | None) -> None:
        """Apply everything except title and dependencies. `section`: its new section; None: unchanged."""
        self._apply_text(written)
        self._apply_status(written)
        self._apply_priority(written, section)
        self._apply_fields(written)

    def take(self, what: str, name: str = "", /, **fields: object) -> None:
        """Set fields; removes an older comment about the same line."""
        lines = tuple(line for line in self.task.lines if not name or not line.startswith(f"{KEPT}{name}: "))
        self.task = replace(self.task, **{"lines": lines, "last_updated": self.at, **fields})  # type: ignore[arg-type]
        if not self.is_new:
            self.taken.append(f"Task {self.task.number}: {what}")

    def keep(self, name: str, value: str, why: str) -> None:
        """Report an edit and keep its text in the block."""
        words = f"{name}: {value or '(nothing)'}: {why}".replace("-->", "-- >").replace("\n", " ")
        comment = f"{KEPT}{words} -->"
        if comment not in self.task.lines:
            self.task = replace(self.task, lines=(*self.task.lines, comment))
        self.kept.append(f"Task {self.task.number}: {name} {shorten(value, _SHOWN)!r} was not applied: {why}")

    def value(self, written: BlockFields, name: str) -> str | None:
        """The person's new value of a line; None: unchanged."""
        value = written.fields.get(name)
        if value == self.before.fields.get(name):
            return None
        return value if value is not None else ""

    def _apply_text(self, written: BlockFields) -> None:
        if written.lines != self.before.lines:
            known = {*self.before.lines, *written.lines}
            more = (line for line in self.task.lines if line.strip() and line not in known)  # added to the task meanwhile
            self.take("lines of its own", lines=(*written.lines, *more))
        if bare(written.description) != bare(self.before.description) and written.description != self.task.description:
            self.take("description", description=written.description)

    def _apply_fields(self, written: BlockFields) -> None:
        for name in ("Effort", "Language", "Started", "Completed"):
            value = self.value(written, name)
            if value is not None and value != (getattr(self.task, name.lower()) or ""):
                nothing = None if name == "Language" else ""
                self.take(f"{name.lower()} {shorten(value, _SHOWN)!r}", name, **{name.lower(): value or nothing})
        for name in ("Research", "Plan", "Implementation"):
            if links := self.value(written, name):
                self.keep(name, links, "links are drawn from the artifacts in state.json.")

    def _apply_priority(self, written: BlockFields, section: Priority | None) -> None:
        """If section and line differ, the section counts."""
        line = self.value(written, "Priority")
        said = Priority.parse(line or "")
        if line and section is None and said is None:
            self.keep("Priority", line, "use High, Medium or Low.")
        elif line and section is not None and said is not section:
            self.keep("Priority", line, f"the task is under {section.capitalize()} Priority, and the section counts.")
        wanted = section or said
        if wanted and wanted is not self.task.priority:
            self.take(f"priority {wanted.capitalize()}", "" if section and line else "Priority", priority=wanted)

    def _apply_status(self, written: BlockFields) -> None:
        line, old = self.value(written, "Status"), self.task.status
        new = parse_status(line) if line else None
        if line and new is None:
            self.keep("Status", line, f"unknown. Use one of {', '.join(status.marker for status in Status)}.")
        elif line and new is not None and new is not old:
            self._move(line, old, new, written.fields.get("Blocking Reason", "").strip())
        self._apply_reason(written)

    def _move(self, line: str, old: Status, new: Status, reason: str) -> None:
        number = self.task.number
        if old is Status.ABANDONED and new is Status.NOT_STARTED:
            self.keep("Status", line, f"Task {number} is [{old.marker}]. Use `remit task --recover {number}`.")
        elif not may_become(old, new):
            allowed = ", ".join(f"[{move.marker}]" for move in MOVES[old]) or "none: it is final"
            self.keep("Status", line, f"Task {number} is [{old.marker}] and cannot become [{new.marker}]. Allowed: {allowed}.")
        elif new in NEED_REASON and not reason:
            self.keep("Status", line, f"[{new.marker}] needs a reason. Set it again together with a line `- **Blocking Reason**: …`.")
        else:
            moved = self.task.moved(new, at=self.at, reason=reason)
            fields = {name: getattr(moved, name) for name in ("status", "started", "completed", "blocking_reason")}
            self.take(f"[{old.marker}] → [{new.marker}]", "Status", **fields)

    def _apply_reason(self, written: BlockFields) -> None:
        reason = self.value(written, "Blocking Reason")
        if reason is None or reason == self.task.blocking_reason:
            return
        if self.task.status not in NEED_REASON and reason:
            self.keep("Blocking Reason", reason, f"Task {self.task.number} is [{self.task.status.marker}]. Set its status with the reason.")
        elif reason:
            self.take("blocking reason", "Blocking Reason", blocking_reason=reason)

    def apply_dependencies(self, written: BlockFields, needs: Mapping[int, Collection[int]]) -> None:
        """`needs`: the dependencies of each task."""
        line = self.value(written, "Dependencies")
        if line is None:
            return
        numbers, words = dependencies_of(line)
        number = self.task.number
        circle = shortest_cycle(number, {**needs, number: numbers}, {*needs, number})
        if circle:
            way = " → ".join(map(str, (*circle, number)))
            self.keep("Dependencies", line, f"Task {number} would depend on itself: {way}. Leave out one of them.")
            return
        if words:
            self.keep("Dependencies", line, "only task numbers count. Write them as `3, 7`.")
        if numbers != self.task.dependencies:
            self.take(f"dependencies {', '.join(map(str, numbers)) or 'none'}", "" if words else "Dependencies", dependencies=numbers)


def may_become(old: Status, new: Status) -> bool:
    """Legal at once, or through a marker that a person need not write: PLANNED → (IMPLEMENTING) → COMPLETED."""
    if old is Status.ABANDONED:
        return False
    return is_legal(old, new) or any(between in IN_PROGRESS and is_legal(between, new) for between in MOVES[old])


def dependencies_of(line: str) -> tuple[tuple[int, ...], str]:
    """The numbers, and the other words."""
    numbers = (int(number) for number in _NUMBERS.findall(line))
    return tuple(dict.fromkeys(number for number in numbers if number)), _FILLING.sub("", _NUMBERS.sub("", line))


def parse_status(line: str) -> Status | None:
    try:
        return status_of(line.strip().strip("`*"))
    except Misused:
        return None


def bare(text: str) -> list[str]:
    """Without trailing white space, which editors may strip."""
    return [line.rstrip() for line in text.split("\n")]


# ---- the whole file


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    state: State
    """The board with the person's edits."""
    taken: tuple[str, ...] = ()
    """Applied edits, one line each, for the person."""
    kept: tuple[str, ...] = ()
    """Edits that could not be applied, with the reason and where they are kept, one line each."""


def merge(state: State, text: str, *, at: str, onto: State | None = None, taken_numbers: Collection[int] = ()) -> MergeResult:
    """The board with a person's edits: `text` is the edited TODO.md, `draw(state)` the original.

    `onto`: the current board; the edits are applied there. `taken_numbers`: of the archive; a new task gets none of them, nor any below
    `next_number`. Raises `Refused` if the text has markers of an unfinished git merge."""
    target = state if onto is None else onto
    drawn, text = draw(state), plain(text)
    if text == drawn:
        return MergeResult(state=target)
    if "<<<<<<<" in text and len(_CONFLICT.findall(text)) > len(_CONFLICT.findall(drawn)):
        raise Refused(
            "specs/TODO.md has the marks of an unfinished merge (<<<<<<<): nothing was read from it, nothing was changed.",
            code="MERGE_CONFLICT",
            advice="Finish the merge, or delete specs/TODO.md: it is drawn again from state.json.",
        )
    if not text.strip():
        return MergeResult(state=target, kept=("TODO.md was empty: it is drawn again.",) if state.tasks else ())
    titles = {task.number: one_line(task.title) for task in state.tasks}
    base, mine = read_sheet(drawn, titles, state.next_number), read_sheet(text, titles, state.next_number)
    is_cut = len(mine.blocks) < len(base.blocks) or any(not block.is_closed for block in mine.blocks[-1:])
    if is_cut and drawn.startswith(text.rstrip()):
        return MergeResult(state=target, kept=("TODO.md ended in the middle: nothing was changed in it, the rest is drawn again.",))
    return _Merge(state, target, base, mine, at=at, taken_numbers=frozenset(taken_numbers)).merged()


class _Merge:
    def __init__(self, state: State, target: State, base: Sheet, mine: Sheet, *, at: str, taken_numbers: frozenset[int]) -> None:
        """`state` is what the person saw, `target` the board now."""
        self.state = state
        self.target = target
        self.base = base
        self.mine = mine
        self.at = at
        self.taken_numbers = taken_numbers
        self.tasks = {task.number: task for task in self.target.tasks}
        self.next_number = max(self.target.next_number, self.state.next_number, 1 + max(self.taken_numbers, default=0))
        self.following: int | None = None
        """The number of the next new task without one."""
        self.taken: list[str] = []
        self.kept: list[str] = []
        self.stray: list[str] = []
        """Text about removed tasks."""
        self.known = {block.number: block for block in base.blocks if block.number is not None}
        self.numbers: list[int | None] = [None] * len(mine.blocks)
        """The task of each block of the person's text."""

    def merged(self) -> MergeResult:
        self._recognize()
        found = set(self.numbers)
        missing = [number for number in self.known if number not in found and number in self.tasks]
        for index, block in enumerate(self.mine.blocks):
            number = self.numbers[index]
            if number is not None:
                self._edit(self.known[number], block, is_last=index == len(self.mine.blocks) - 1)
        fresh = [index for index, number in enumerate(self.numbers) if number is None]
        for index in fresh:
            self._add(index)
        self._tell_missing(missing)
        texts = self._texts(missing)
        tasks = self._ordered(missing)
        if not (self.taken or self.kept or self.stray):
            return MergeResult(state=self.target)
        next_number = max([self.target.next_number, *(1 + task.number for task in tasks)])
        state = replace(self.target, tasks=tasks, texts=texts, next_number=next_number)
        return MergeResult(state=state, taken=tuple(self.taken), kept=tuple(self.kept))

    def _recognize(self) -> None:
        """Match blocks to tasks: by number, and if a number is duplicated or changed, by title."""
        claimed: dict[int, list[int]] = {}
        for index, block in enumerate(self.mine.blocks):
            if block.number is not None and block.number in self.known:
                claimed.setdefault(block.number, []).append(index)
        for number, indexes in claimed.items():
            known, mine = self.known[number], self.mine.blocks
            closest = min(indexes, key=lambda index: (not mine[index].looks_like(known), mine[index].title != known.title))
            self.numbers[closest] = number
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
        if mine.title and mine.title not in (base.title, task.title):
            edit.take(f"title {shorten(mine.title, _SHOWN)!r}", title=mine.title)
        self._apply(edit, read_block(mine.lines), section)

    def _apply(self, edit: Edit, written: BlockFields, section: Priority | None) -> None:
        edit.apply(written, section)
        if written.fields.get("Dependencies") != edit.before.fields.get("Dependencies"):
            edit.apply_dependencies(written, {number: task.dependencies for number, task in self.tasks.items()})
        self.tasks[edit.task.number] = edit.task
        self.taken += edit.taken
        self.kept += edit.kept

    def _moved_to(self, base: Block, mine: Block) -> Priority | None:
        """The section it was moved to; not if a heading is missing, or the person's own section begins."""
        if mine.section is None or mine.section is base.section or base.section not in self.mine.headings:
            return None
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
        number = block.number
        if number is None or number < self.next_number or number in self.tasks or number in self.taken_numbers:
            number = self._next()
        title = one_line(block.title) or "Untitled"
        task = Task(number=number, title=title, slug=slug_of(title), created=self.at, priority=block.section or Priority.MEDIUM)
        self.numbers[index] = number
        instead = f" (the number {block.number} is taken)" if block.number not in (None, number) else ""
        self.taken.append(f"Task {number} is new: {title}{instead}")
        self._apply(Edit(task, at=self.at, base=None), read_block(block.lines), block.section)

    def _next(self) -> int:
        """Above all numbers, including those that other new tasks requested."""
        if self.following is None:
            asked = (block.number for block in self.mine.blocks if block.number is not None and block.number >= self.next_number)
            self.following = max([self.next_number, *(1 + number for number in (*self.tasks, *asked))])
        self.following += 1
        return self.following - 1

    def _tell_missing(self, missing: Sequence[int]) -> None:
        if missing:
            gone = f"{'Task' if len(missing) == 1 else 'Tasks'} {list_some(missing, 5)}"
            self.kept.append(f"{gone} taken out of TODO.md: drawn again. To give up: remit task --abandon {missing[0]} --reason WHY")

    def _texts(self, missing: Sequence[int]) -> dict[str, str]:
        """A person's own text, by its current position."""
        before = self.base.texts([block.number for block in self.base.blocks])
        after = {
            key: before[key] if key in before and bare(before[key]) == bare(text) else text
            for key, text in self.mine.texts(self.numbers).items()
        }
        self._keep_cut(before, after, missing)
        texts = dict(self.target.texts)
        if after != before:
            if self.target.texts == self.state.texts:
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
        """Text that was removed with a redrawn task or section is drawn again too, unless it is elsewhere now."""
        gone = {f"after:{number}" for number in missing}
        gone |= {f"{where}:{one}" for one in self.base.headings if one not in self.mine.headings for where in ("heading", "begin", "end")}
        everything = "\n\n".join(after.values())
        for key in gone & before.keys() - after.keys():
            if before[key] not in everything:
                after[key] = before[key]

    def _ordered(self, missing: Sequence[int]) -> tuple[Task, ...]:
        """In the person's order; tasks they did not see follow their former predecessor."""
        order = list(dict.fromkeys(number for number in self.numbers if number is not None and number in self.tasks))
        _put_back(order, missing, [block.number for block in self.base.blocks])
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
    """Tasks that are neither new nor moved to another section."""
    return [task.number for task in tasks if old.get(task.number) is task.priority]


def _put_back(order: list[int], numbers: Iterable[int], sequence: Sequence[int | None]) -> None:
    """Each after its nearest predecessor in `sequence` that `order` has."""
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
