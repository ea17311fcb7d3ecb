"""Which entry of the old state.json and which block of the old TODO.md are one task. Pure.

By number, unless their titles have nothing in common; where a number stands for several, by title.
A task that lost its number to another gets the next free one.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from remit.board.importing.old_state import OldEntry, OldState
from remit.board.importing.old_todo import OldBlock, OldTodo
from remit.board.task import slug_of

_SHORT_WORD = 2


@dataclass(slots=True)
class Slot:
    """One task, as the files have it."""

    wanted: int | None
    number: int = 0
    """The one it gets."""
    entries: list[OldEntry] = field(default_factory=list)
    """The first counts; others are the same task again."""
    block: OldBlock | None = None
    more_blocks: list[OldBlock] = field(default_factory=list)
    """The same task again, under the same number and title."""

    names: set[str] = field(default_factory=set)
    """Slugs it goes by."""
    drawn_as: str = ""
    """The slug of its block."""

    @property
    def is_archived(self) -> bool:
        """Only among the ended ones, and not drawn in TODO.md any more."""
        return self.block is None and bool(self.entries) and all(entry.is_ended for entry in self.entries)

    def enter(self, entry: OldEntry, names: set[str]) -> None:
        self.entries.append(entry)
        self.names |= names

    def draw(self, block: OldBlock, name: str) -> None:
        self.block, self.drawn_as = block, name
        self.names.add(name)


@dataclass(slots=True)
class Paired:
    slots: list[Slot] = field(default_factory=list)
    of_block: dict[int, Slot] = field(default_factory=dict)
    """By the block's index; a word-for-word copy has the slot of the first."""
    told: list[str] = field(default_factory=list)
    next_number: int = 1


def pair(state: OldState, todo: OldTodo) -> Paired:
    paired = Paired()
    by_number: dict[int | None, list[Slot]] = {}
    # Active ones first: of two with one number, the one still worked on keeps it.
    for entry in sorted(state.entries, key=lambda one: one.is_ended):
        _enter(paired, by_number, entry)
    by_name = _by_name(paired.slots)
    for block in sorted(todo.blocks, key=lambda one: not _has_namesake(one, by_number)):
        _place(paired, by_number, by_name, block)
    _number(paired, state)
    return paired


def _enter(paired: Paired, by_number: dict[int | None, list[Slot]], entry: OldEntry) -> None:
    slots = by_number.setdefault(entry.number, [])
    names = {slug_of(str(name)) for name in (entry.raw.get("title"), entry.name) if name}
    same = next((slot for slot in slots if not names or not slot.names or names & slot.names), None) if entry.number is not None else None
    if same is not None:
        same.enter(entry, names)
        return
    slot = Slot(wanted=entry.number)
    slot.enter(entry, names)
    slots.append(slot)
    paired.slots.append(slot)


def _by_name(slots: Iterable[Slot]) -> dict[str, list[Slot]]:
    found: dict[str, list[Slot]] = {}
    for slot in slots:
        for name in slot.names:
            found.setdefault(name, []).append(slot)
    return found


def _has_namesake(block: OldBlock, by_number: dict[int | None, list[Slot]]) -> bool:
    """Blocks that are certain of their entry go first."""
    name = slug_of(block.title)
    return any(name in slot.names for slot in by_number.get(block.number, ()))


def _place(paired: Paired, by_number: dict[int | None, list[Slot]], by_name: dict[str, list[Slot]], block: OldBlock) -> None:
    name = slug_of(block.title)
    slots = by_number.get(block.number, []) if block.number is not None else by_name.get(name, [])
    slot = next((one for one in slots if one.block is None and name in one.names), None)
    if slot is None:
        same = next((one for one in slots if one.drawn_as == name), None)
        if same is not None:
            same.more_blocks.append(block)
            paired.of_block[block.index] = same
            paired.told.append(f"{block.title!r} stood in TODO.md more than once: it is drawn once, with the lines of all.")
            return
        if block.number is not None:
            slot = next((one for one in slots if one.block is None and _share_a_word(name, one.names)), None)
    if slot is None:
        slot = Slot(wanted=block.number)
        by_number.setdefault(block.number, []).append(slot)
        by_name.setdefault(name, []).append(slot)
        paired.slots.append(slot)
    slot.draw(block, name)
    paired.of_block[block.index] = slot


def _share_a_word(name: str, names: Collection[str]) -> bool:
    """Titles that have no word in common are two tasks, whatever their number."""
    words = {word for word in name.split("_") if len(word) > _SHORT_WORD}
    return not names or not words or any(words & set(other.split("_")) for other in names)


def _number(paired: Paired, state: OldState) -> None:
    """Each keeps its own number; whoever finds it taken, or has none, gets the next above all there are."""
    taken: dict[int, Slot] = {}
    for slot in sorted(paired.slots, key=lambda one: one.is_archived):
        if slot.wanted is not None and slot.wanted not in taken:
            taken[slot.wanted] = slot
            slot.number = slot.wanted
    following = max([state.next_number - 1, *taken]) + 1
    for slot in paired.slots:
        if not slot.number and not (slot.is_archived and slot.wanted is not None):
            slot.number = following
            following += 1
            name = slot.block.title if slot.block else str(slot.entries[0].raw.get("title") or slot.entries[0].name)
            had = f"the number {slot.wanted}, which another task has" if slot.wanted is not None else "no number"
            paired.told.append(f"{name!r} had {had}: it is Task {slot.number} now.")
    paired.next_number = following
