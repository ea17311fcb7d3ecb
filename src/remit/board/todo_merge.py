"""Merges a person's edits of TODO.md into the board: the difference between the original drawing and the edited text.

Pure. A removed task is drawn again, a number is never reused, text is never dropped. An edit that cannot be applied is reported in a
sentence and kept in the block as a comment, `<!-- remit kept: … -->`."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from remit.board.task import IN_PROGRESS, MOVES, Priority, State, Status, Task, check_move, is_legal, slug_of, status_of
from remit.board.todo import HEAD, Block, BlockFields, Sheet, draw, one_line, plain, read_block, read_sheet
from remit.core.cycles import shortest_cycle
from remit.core.errors import Misused, Refused
from remit.core.text import list_some, shorten

KEPT = "<!-- remit kept: "
_NUMBERS = re.compile(r"#?\b(\d{1,6})\b")
_FILLING = re.compile(r"\b(?:tasks?|and|none)\b|[\s,;&]+", re.IGNORECASE)
_SHOWN = 120
_CONFLICT = re.compile(r"^(?:<{7}|>{7})(?: |$)", re.MULTILINE)


# ---- the edits of one task


class Edit:
    """One task while the changes of its block are applied."""

    def __init__(self, task: Task, written: BlockFields, *, at: str, base: BlockFields | None) -> None:
        """`base`: its block before; None: the task is new."""
        self.task = task
        self.written = written
        self.at = at
        self.before = base if base is not None else BlockFields(fields={})
        self.is_new = base is None
        self.taken: list[str] = []
        self.kept: list[str] = []

    def apply(self, section: Priority | None, needs: Mapping[int, Collection[int]]) -> None:
        """Apply everything except the title. `section`: its new section; None: unchanged. `needs`: the dependencies of each task."""
        self._apply_text()
        self._apply_status()
        self._apply_priority(section)
        self._apply_fields()
        self._apply_dependencies(needs)

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

    def value(self, name: str) -> str | None:
        """The person's new value of a line; None: unchanged."""
        value = self.written.fields.get(name)
        return None if value == self.before.fields.get(name) else value or ""

    def _apply_text(self) -> None:
        if self.written.lines != self.before.lines:
            known = {*self.before.lines, *self.written.lines}
            more = (line for line in self.task.lines if line.strip() and line not in known)  # added to the task meanwhile
            self.take("lines of its own", lines=(*self.written.lines, *more))
        description = self.written.description
        if bare(description) != bare(self.before.description) and description != self.task.description:
            self.take("description", description=description)

    def _apply_fields(self) -> None:
        for name in ("Effort", "Language", "Started", "Completed"):
            value = self.value(name)
            if value is not None and value != (getattr(self.task, name.lower()) or ""):
                nothing = None if name == "Language" else ""
                self.take(f"{name.lower()} {shorten(value, _SHOWN)!r}", name, **{name.lower(): value or nothing})
        for name in ("Research", "Plan", "Implementation"):
            if links := self.value(name):
                self.keep(name, links, "links are drawn from the artifacts in state.json.")

    def _apply_priority(self, section: Priority | None) -> None:
        """If section and line differ, the section counts."""
        line = self.value("Priority")
        said = Priority.parse(line or "")
        if line and section is None and said is None:
            self.keep("Priority", line, "use High, Medium or Low.")
        elif line and section is not None and said is not section:
            self.keep("Priority", line, f"the task is under {section.capitalize()} Priority, and the section counts.")
        wanted = section or said
        if wanted and wanted is not self.task.priority:
            self.take(f"priority {wanted.capitalize()}", "" if section and line else "Priority", priority=wanted)

    def _apply_status(self) -> None:
        line, old, reason = self.value("Status"), self.task.status, self.value("Blocking Reason")
        new = parse_status(line) if line else None
        if line and new is None:
            self.keep("Status", line, f"unknown. Use one of {', '.join(status.marker for status in Status)}.")
        elif line and new is not None and new is not old:
            self._move(line, new, self.written.fields.get("Blocking Reason", "").strip())
        if reason and reason != self.task.blocking_reason:
            if self.task.status in (Status.BLOCKED, Status.ABANDONED):
                self.take("blocking reason", "Blocking Reason", blocking_reason=reason)
            else:
                words = f"Task {self.task.number} is [{self.task.status.marker}]. Set its status with the reason."
                self.keep("Blocking Reason", reason, words)

    def _move(self, line: str, new: Status, reason: str) -> None:
        old, number = self.task.status, self.task.number
        try:
            if old is Status.ABANDONED:
                raise Refused(f"Task {number} is [{old.marker}]. Use `remit task --recover {number}`.")
            check_move(number, next((one for one in _between(old) if is_legal(one, new)), old), new, reason=reason)
        except Refused as error:
            self.keep("Status", line, error.message)
        except Misused:
            self.keep("Status", line, f"[{new.marker}] needs a reason. Set it again together with a line `- **Blocking Reason**: …`.")
        else:
            moved = self.task.moved(new, at=self.at, reason=reason)
            fields = {name: getattr(moved, name) for name in ("status", "started", "completed", "blocking_reason")}
            self.take(f"[{old.marker}] → [{new.marker}]", "Status", **fields)

    def _apply_dependencies(self, needs: Mapping[int, Collection[int]]) -> None:
        line = self.value("Dependencies")
        if line is None:
            return
        number, numbers = self.task.number, tuple(dict.fromkeys(int(one) for one in _NUMBERS.findall(line) if int(one)))
        if circle := shortest_cycle(number, {**needs, number: numbers}, {*needs, number}):
            way = " → ".join(map(str, (*circle, number)))
            self.keep("Dependencies", line, f"Task {number} would depend on itself: {way}. Leave out one of them.")
            return
        words = _FILLING.sub("", _NUMBERS.sub("", line))
        if words:
            self.keep("Dependencies", line, "only task numbers count. Write them as `3, 7`.")
        if numbers != self.task.dependencies:
            self.take(f"dependencies {', '.join(map(str, numbers)) or 'none'}", "" if words else "Dependencies", dependencies=numbers)


def _between(old: Status) -> tuple[Status, ...]:
    """The status itself, and markers that a person need not write: PLANNED → (IMPLEMENTING) → COMPLETED."""
    return (old, *(one for one in MOVES[old] if one in IN_PROGRESS))


def may_become(old: Status, new: Status) -> bool:
    """Whether a person may write this status."""
    return old is not Status.ABANDONED and any(is_legal(one, new) for one in _between(old))


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
    if len(_CONFLICT.findall(text)) > len(_CONFLICT.findall(drawn)):
        raise Refused(
            "specs/TODO.md has the marks of an unfinished merge (<<<<<<<): nothing was read from it, nothing was changed.",
            code="MERGE_CONFLICT",
            advice="Finish the merge, or delete specs/TODO.md: it is drawn again from state.json.",
        )
    if not text.strip():
        return MergeResult(state=target, kept=("TODO.md was empty: it is drawn again.",) if state.tasks else ())
    titles = {task.number: one_line(task.title) for task in state.tasks}
    base, mine = (read_sheet(one, titles, state.next_number) for one in (drawn, text))
    is_cut = len(mine.blocks) < len(base.blocks) or any(not block.is_closed for block in mine.blocks[-1:])
    if is_cut and drawn.startswith(text.rstrip()):
        return MergeResult(state=target, kept=("TODO.md ended in the middle: nothing was changed in it, the rest is drawn again.",))
    return _Merge(state, target, base, mine, at=at, taken_numbers=frozenset(taken_numbers)).merged()


class _Merge:
    def __init__(self, state: State, target: State, base: Sheet, mine: Sheet, *, at: str, taken_numbers: frozenset[int]) -> None:
        """`state` is what the person saw, `target` the board now."""
        self.target = target
        self.base = base
        self.mine = mine
        self.at = at
        self.tasks = {task.number: task for task in target.tasks}
        self.taken_numbers = taken_numbers | self.tasks.keys()
        self.next_number = max(target.next_number, state.next_number, 1 + max(taken_numbers, default=0))
        self.taken: list[str] = []
        self.kept: list[str] = []
        self.stray: list[str] = []
        """Text about removed tasks."""
        self.known = {block.number: block for block in base.blocks if block.number is not None}
        self.numbers = self._recognized()
        """The task of each block of the person's text."""

    def merged(self) -> MergeResult:
        found = set(self.numbers)
        missing = [number for number in self.known if number not in found and number in self.tasks]
        for number, block in zip(self.numbers, self.mine.blocks, strict=True):
            if number is not None:
                self._edit(number, self.known[number], block)
        self._add_new()
        if missing:
            gone = f"{'Task' if len(missing) == 1 else 'Tasks'} {list_some(missing, 5)}"
            self.kept.append(f"{gone} taken out of TODO.md: drawn again. To give up: remit task --abandon {missing[0]} --reason WHY")
        texts, tasks = self._texts(), self._ordered()
        if not (self.taken or self.kept or self.stray):
            return MergeResult(state=self.target)
        next_number = max([self.target.next_number, *(1 + task.number for task in tasks)])
        state = replace(self.target, tasks=tasks, texts=texts, next_number=next_number)
        return MergeResult(state=state, taken=tuple(self.taken), kept=tuple(self.kept))

    def _recognized(self) -> list[int | None]:
        """The known task of each block: by number, and if that is duplicated or changed, by title."""
        blocks, numbers = self.mine.blocks, list[int | None]([None] * len(self.mine.blocks))
        best: dict[int, tuple[bool, bool, int]] = {}
        for at, block in enumerate(blocks):
            if block.number is not None and (known := self.known.get(block.number)) is not None:
                found = (block.title != known.title, block.lines != known.lines, at)
                best[block.number] = min(found, best.get(block.number, found))
        lost: dict[str, list[int]] = {}
        for number, known in self.known.items():
            if number in best:
                numbers[best[number][2]] = number
            else:
                lost.setdefault(known.title, []).append(number)
        for at, block in enumerate(blocks):
            if numbers[at] is None and len(lost.get(block.title, ())) == 1:
                numbers[at] = lost[block.title].pop()
                self.kept.append(f"Task {numbers[at]} keeps its number: numbers never change.")
        return numbers

    def _edit(self, number: int, base: Block, mine: Block) -> None:
        # Not moved if the heading of its section is missing, or the person's own section begins.
        is_moved = mine.section not in (None, base.section) and base.section in self.mine.headings
        if mine.lines == base.lines and mine.title == base.title and not is_moved:
            return
        is_part = base.title.startswith(mine.title) and "\n".join(base.lines).startswith("\n".join(mine.lines).rstrip())
        if is_part and mine is self.mine.blocks[-1] and not mine.is_closed:
            self.kept.append(f"it ended in the middle of Task {number}, which is drawn again.")
            return
        task = self.tasks.get(number)
        if task is None:
            self._keep_gone(number, base, mine)
            return
        edit = Edit(task, read_block(mine.lines), at=self.at, base=read_block(base.lines))
        if mine.title and mine.title not in (base.title, task.title):
            edit.take(f"title {shorten(mine.title, _SHOWN)!r}", title=mine.title)
        self._apply(edit, mine.section if is_moved else None)

    def _apply(self, edit: Edit, section: Priority | None) -> None:
        edit.apply(section, {number: task.dependencies for number, task in self.tasks.items()})
        self.tasks[edit.task.number] = edit.task
        self.taken += edit.taken
        self.kept += edit.kept

    def _keep_gone(self, number: int, base: Block, mine: Block) -> None:
        words = " / ".join(line.strip() for line in (mine.title, *mine.lines) if line.strip() and line not in (base.title, *base.lines))
        if words:
            self.stray.append(f"{KEPT}Task {number} is no longer on the board: {words.replace('-->', '-- >')} -->")
            self.kept.append(f"Task {number} is no longer on the board; what was changed in it is kept at the end of TODO.md.")

    def _add_new(self) -> None:
        """Each under its number if that is free, else above all numbers, also those that other new tasks ask for."""
        new = [(at, block) for at, block in enumerate(self.mine.blocks) if self.numbers[at] is None]
        asked = [block.number for _, block in new if block.number is not None and block.number >= self.next_number]
        following = max([self.next_number, *(1 + number for number in (*self.tasks, *asked))])
        for at, block in new:
            number = block.number
            if number is None or number < self.next_number or number in self.tasks or number in self.taken_numbers:
                number, following = following, following + 1
            title = one_line(block.title) or "Untitled"
            task = Task(number=number, title=title, slug=slug_of(title), created=self.at, priority=block.section or Priority.MEDIUM)
            self.numbers[at] = number
            instead = f" (the number {block.number} is taken)" if block.number not in (None, number) else ""
            self.taken.append(f"Task {number} is new: {title}{instead}")
            self._apply(Edit(task, read_block(block.lines), at=self.at, base=None), block.section)

    def _texts(self) -> dict[str, str]:
        """A person's own text, by its current position."""
        before, after = self.base.texts([block.number for block in self.base.blocks]), self.mine.texts(self.numbers)
        texts = dict(self.target.texts)
        changed = [key for key in {**before, **after} if bare(before.get(key, "")) != bare(after.get(key, ""))]
        for key in changed:
            texts[key] = after.get(key, "")
        if changed:
            self.taken.append("Your own text between the tasks")
        if self.stray:
            texts["end:low"] = "\n\n".join(filter(None, (texts.get("end:low"), *self.stray)))
        return {key: text for key, text in texts.items() if (text or key == "top") and (key, text) != ("top", HEAD)}

    def _ordered(self) -> tuple[Task, ...]:
        """In the person's order; a task they did not see follows its former predecessor."""
        order = [number for number in self.numbers if number in self.tasks]
        placed, previous = set(order), None
        for task in self.target.tasks:
            if task.number not in placed:
                order.insert(0 if previous is None else order.index(previous) + 1, task.number)
                placed.add(task.number)
            previous = task.number
        ranks = list(Priority)
        wanted = sorted((self.tasks[number] for number in order if number is not None), key=lambda task: ranks.index(task.priority))
        current = sorted((self.tasks[task.number] for task in self.target.tasks), key=lambda task: ranks.index(task.priority))
        if wanted == current:
            return tuple(self.tasks[task.number] for task in self.target.tasks)
        old = {task.number: task.priority for task in self.target.tasks}
        if _stayed(wanted, old) != _stayed(current, old):
            self.taken.append("The order of the tasks")
        return tuple(wanted)


def _stayed(tasks: Iterable[Task], old: Mapping[int, Priority]) -> Sequence[int]:
    """Tasks that are neither new nor moved to another section."""
    return [task.number for task in tasks if old.get(task.number) is task.priority]
