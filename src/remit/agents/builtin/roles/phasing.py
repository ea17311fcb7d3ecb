"""From the words of a task to phases: its own list, else the sentences that ask for something, else three plain steps. By rule.

Pure. `planning` gathers what it is given, `drafting` writes the plan. Whatever comes from a person or a report is put on one line here,
without what would read as markup of a plan.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from remit.agents.builtin.roles.answering import shortly
from remit.agents.builtin.roles.asking import asks

MOST_PHASES = 5
NAME_LENGTH = 60
STEP_LENGTH = 300
_ITEM = re.compile(r"^(?P<indent>[ \t]*)(?:[-*+]|\(?\d{1,3}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?(?P<words>\S.*)$")
_INLINE = re.compile(r"(?:(?<=\s)|^)\(?\d{1,2}[.)]\s+")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'`(])")
_HOURS = re.compile(
    r"\beffort\W{0,6}\s*(?P<low>\d+(?:\.\d+)?)\s*(?:(?:-|–|to)\s*(?P<high>\d+(?:\.\d+)?)\s*)?(?P<unit>h|hour|d|day|w|week|min|minute)",
    re.IGNORECASE,
)
_UNITS = {"m": 1 / 60, "h": 1.0, "d": 8.0, "w": 40.0}
_CLOSING = re.compile(r"\b(?:tests?|testing|document(?:ation|ed)?|docs|verify|check)\b", re.IGNORECASE)
_WRITING = re.compile(r"\b(?:document\w*|docs|readme|changelog|tests?)\b", re.IGNORECASE)
STEP_HOURS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing that is asked for."""

    words: str
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A phase to be written."""

    name: str
    goal: str
    steps: tuple[str, ...]
    about: str = ""
    """The words by which files that it may touch are looked for."""
    files: tuple[str, ...] = ()
    hours: float = 0.0
    accept: tuple[str, ...] = field(default_factory=tuple)
    ends_red: bool = False
    """Its test fails until the phase after it: the tests as a whole cannot decide on it."""


def items_of(text: str) -> list[Item]:
    """What a description asks for, one by one: the items of its list, numbered parts of a sentence, sentences that ask for something.

    None where there are not several: a sentence that tells how things are is nothing to do.
    """
    listed = _listed(text)
    if len(listed) >= 2:
        return listed
    flat = " ".join(text.split())
    inline = [part.strip(" ;,.") for part in _INLINE.split(flat)[1:] if part.strip(" ;,.")]
    if len(inline) >= 2:
        return [Item(words=part) for part in inline]
    sentences = _asking(_SENTENCE.split(flat))
    if len(sentences) < 2:
        sentences = _asking(flat.split(";"))
    return [Item(words=part) for part in sentences] if len(sentences) >= 2 else []


def _asking(parts: Sequence[str]) -> list[str]:
    return [part.strip() for part in parts if len(part.split()) >= 3 and asks(part)]


def _listed(text: str) -> list[Item]:
    """Items of the outermost list; what is indented below one is a part of it, and a line that goes on belongs to the one before."""
    items: list[list[str]] = []
    outer: int | None = None
    for line in text.splitlines():
        found = _ITEM.match(line)
        if found:
            indent = len(found["indent"].expandtabs(4))
            outer = indent if outer is None else outer
            if indent <= outer:
                items.append([found["words"].strip()])
            else:
                items[-1].append(found["words"].strip())
        elif items and line.strip() and line[:1] in " \t":
            items[-1][-1] += f" {line.strip()}"
    return [Item(words=words, parts=tuple(parts)) for words, *parts in items]


def phases_of(title: str, items: Sequence[Item], *, effort: float | None, has_tests: bool) -> list[Draft]:
    """Two to five. `effort`: hours that the task is said to take."""
    if not items:
        drafts = _plainly(title, has_tests)
    else:
        room = MOST_PHASES if any(_CLOSING.search(item.words) for item in items[-1:]) else MOST_PHASES - 1
        drafts = [_of_group(group, has_tests) for group in _grouped(items, room)]
        if room < MOST_PHASES or len(drafts) < 2:
            drafts.append(_closing(has_tests))
    return _timed(drafts, effort)


def _grouped(items: Sequence[Item], room: int) -> list[Sequence[Item]]:
    """In their order, as evenly as it goes."""
    groups = min(len(items), room)
    size, more = divmod(len(items), groups)
    found, start = [], 0
    for place in range(groups):
        end = start + size + (place < more)
        found.append(items[start:end])
        start = end
    return found


def _of_group(group: Sequence[Item], has_tests: bool) -> Draft:
    first, *rest = group
    more = f" and {len(rest)} more" if rest else ""
    steps = [step for item in group for step in ((*item.parts,) if item.parts and not rest else (item.words, *item.parts))]
    if has_tests and not all(_WRITING.search(item.words) for item in group):
        steps.append("Write or extend a test that fails without this change")
    goal = first.words if not rest else "; ".join(item.words.rstrip(". ;") for item in group)
    return Draft(
        name=name_of(first.words, NAME_LENGTH - len(more)) + more,
        goal=one_line(goal),
        steps=tuple(map(one_line, steps)),
        about=" ".join(f"{item.words} {' '.join(item.parts)}" for item in group),
    )


def _plainly(title: str, has_tests: bool) -> list[Draft]:
    asked = one_line(title).rstrip(".")
    first = ["Read the places in the code that are named above, and find where the change belongs"]
    first += ["Write a test that shows what is wrong or missing today"] if has_tests else ["Write down how one sees that it is done"]
    find = Draft(
        name="Pin the behaviour down by a test" if has_tests else "Find the place and pin the behaviour down",
        goal=f"It is known where this is changed{', and a test fails until it is' if has_tests else ''}: {asked}",
        steps=tuple(first),
        about=title,
        ends_red=has_tests,
    )
    change = Draft(name=name_of(title, NAME_LENGTH), goal=f"It is done: {asked}", steps=(f"Make the change: {asked}",), about=title)
    return [find, change, _closing(has_tests)]


def _closing(has_tests: bool) -> Draft:
    steps = ["Run all tests, and mend what the change broke"] if has_tests else ["Try it out as a user would, and mend what is wrong"]
    return Draft(
        name="Check and document",
        goal="The whole works together, and whoever uses it can read how",
        steps=(*steps, "Bring the documentation up to date where it speaks of what changed"),
    )


def _timed(drafts: list[Draft], effort: float | None) -> list[Draft]:
    """The effort that was said, shared out by the number of steps; else half an hour for each."""
    steps = sum(len(draft.steps) for draft in drafts) or 1
    each = STEP_HOURS if effort is None else effort / steps
    return [replace(draft, hours=max(0.25, round(4 * each * len(draft.steps)) / 4)) for draft in drafts]


def effort_in(text: str) -> float | None:
    """Hours, where the words of a task name its effort: of a span the upper end."""
    found = _HOURS.search(text)
    if found is None:
        return None
    hours = float(found["high"] or found["low"]) * _UNITS[found["unit"][0].lower()]
    return hours if 0 < hours < 10_000 else None


def timing_of(hours: float) -> str:
    if hours < 1:
        return f"about {hours * 60:.0f} minutes"
    return "about 1 hour" if hours == 1 else f"about {hours:g} hours"


def one_line(text: str) -> str:
    return shortly(text.replace("\0", ""), STEP_LENGTH)


def name_of(words: str, most: int) -> str:
    """A heading: no markup, no brackets (a marker stands in those), no full stop."""
    plain = re.sub(r"[`*_#\[\]<>|]+", " ", words)
    name = shortly(plain, most).strip(" .,;:-…")
    return (name[:1].upper() + name[1:]) or "Make the change"
