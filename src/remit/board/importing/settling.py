"""One task out of what two files say of it, by one rule (S6.1, S6.3). Pure.

Where both say something and differ, state.json counts; of two statuses the one further along. What does not count, and what says
nothing to us, is kept: values in the entry under `imported`, lines of TODO.md in the block.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from remit.board.importing.pairing import Slot
from remit.board.importing.words import FURTHER, further, number_in, priority_in, status_in, time_in
from remit.board.statuses import NEED_REASON, Status
from remit.board.task import SLUG_LENGTH, PlanVersion, Priority, Task, TaskArtifact, slug_of
from remit.board.todo_edits import KEPT, dependencies_of
from remit.board.todo_lines import one_line
from remit.board.todo_reading import Written

Place = Callable[[str], str]
NO_REASON = "not recorded before the import"
_SLUG = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{SLUG_LENGTH - 1}}}")
_LINK = re.compile(r"\[([^\[\]]*)\]\(<?([^()<>]+)>?\)")
_NO_WORDS = re.compile(r"[\s,;|·-]*")
_TEXTS = ("type", "session_id", "completion_summary", "complexity", "source")
_TIMES = ("created", "started", "completed", "last_updated")
_USED = frozenset(
    {*_TEXTS, *_TIMES, "project_number", "project_name", "title", "status", "priority", "language", "description", "effort",
     "dependencies", "blocking_reason", "artifacts", "plan_path", "plan_versions", "accept", "parent", "todo_lines"}
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One field on which the two files differed."""

    number: int
    field: str
    state: str
    todo: str
    settled: str


@dataclass(slots=True)
class Settling:
    """One task while it is made."""

    slot: Slot
    raw: Mapping[str, Any]
    written: Written
    lines: list[str] = field(default_factory=list)
    imported: dict[str, Any] = field(default_factory=dict)
    drifts: list[Drift] = field(default_factory=list)

    def keep_value(self, key: str, value: Any) -> None:
        """A value of state.json that does not count, or that we cannot read."""
        if value not in (None, "", [], {}):
            self.imported.setdefault(key, value)

    def keep_line(self, name: str, value: str) -> None:
        """A line of TODO.md that we cannot read."""
        words = f"{name}: {value}".replace("-->", "-- >")
        self.lines.append(f"{KEPT}{words} -->")

    def chosen(self, name: str, state: Any, todo: Any) -> Any:
        """state.json's where it has one."""
        if state in (None, ""):
            return todo
        if todo not in (None, "") and todo != state:
            self.drift(name, state, todo, state)
            self.imported.setdefault(f"todo_{name}", str(todo))
        return state

    def drift(self, name: str, state: object, todo: object, settled: object) -> None:
        self.drifts.append(Drift(number=self.slot.number, field=name, state=str(state), todo=str(todo), settled=str(settled)))


def settle(slot: Slot, place: Place) -> tuple[Task, tuple[Drift, ...]]:
    """`place`: where a path of the old files is, relative to the root."""
    raw = dict(slot.entries[0].raw) if slot.entries else {}
    written = slot.block.written if slot.block else Written(fields={})
    work = Settling(slot, raw, written, lines=[*written.lines])
    _fill_in(work)
    _add_lines(work)
    title = _title(work)
    status = _status(work)
    times = _times(work)
    artifacts = _artifacts(work, place)
    plan_path, plan_versions = _plans(work, place)
    task = Task(
        number=slot.number,
        title=title,
        slug=_slug(work, title),
        status=status,
        priority=_priority(work),
        language=_plain(work, "language", "Language") or None,
        description=_description(work),
        effort=_plain(work, "effort", "Effort"),
        dependencies=_dependencies(work),
        blocking_reason=_reason(work, status),
        artifacts=artifacts,
        plan_path=plan_path,
        plan_versions=plan_versions,
        accept=_list_of_text(work, "accept"),
        parent=_parent(work),
        **{"type": "feature"} | {key: text for key in _TEXTS if (text := _text(work, key))},
        **times,
        lines=(*(line for line in _list_of_text(work, "todo_lines") if line not in work.lines), *work.lines),
        extra=_extra(work),
    )
    return task, tuple(work.drifts)


def _fill_in(work: Settling) -> None:
    """The same task a second time in state.json: what the first lacks comes from there, the rest is kept."""
    raw = dict(work.raw)
    for entry in work.slot.entries[1:]:
        left = {}
        for key, value in entry.raw.items():
            if raw.get(key) in (None, "", [], {}):
                raw[key] = value
            elif raw[key] != value:
                left[key] = value
        if left:
            work.imported.setdefault("again", []).append(left)
            shown = ", ".join(left)
            work.drift("entry", f"stands {len(work.slot.entries)} times", f"differs in {shown}", "the first")
    work.raw = raw


def _add_lines(work: Settling) -> None:
    """Lines that stand a second time, in the same block or in another of the same task, where they say something else."""
    for name, value in work.written.again:
        work.keep_line(name, value)
    for block in work.slot.more_blocks:
        work.lines += [line for line in block.written.lines if line not in work.lines]
        for name, value in (*block.written.fields.items(), *block.written.again):
            if value != work.written.fields.get(name, ""):
                work.keep_line(name, value)


def _title(work: Settling) -> str:
    state = work.raw.get("title")
    if state is not None and not isinstance(state, str):
        work.keep_value("title", state)
        state = None
    todo = work.slot.block.title if work.slot.block else ""
    named = work.slot.entries[0].name.replace("_", " ").strip() if work.slot.entries else ""
    return one_line(work.chosen("title", one_line(state or ""), one_line(todo))) or named or "Untitled"


def _slug(work: Settling, title: str) -> str:
    name = work.raw.get("project_name") or (work.slot.entries[0].name if work.slot.entries else "")
    if isinstance(name, str) and _SLUG.fullmatch(name):
        return name
    work.keep_value("project_name", name)
    return slug_of(title)


def _status(work: Settling) -> Status:
    raw = work.raw.get("status")
    state, more = status_in(raw)
    is_unread = bool(raw) and state is None
    if raw is not None and (state is None or more):
        work.keep_value("status", raw)
    if state is None and work.slot.entries and work.slot.entries[0].is_ended:
        state = Status.COMPLETED
    line = work.written.fields.get("Status")
    todo, words = status_in(line)
    is_unread = is_unread or (bool(line) and todo is None)
    if line and (todo is None or words):
        work.keep_line("Status", line)
    blocks = [work.slot.block, *work.slot.more_blocks] if work.slot.block else []
    found = [todo, *(block.heading_status for block in blocks), *(status_in(block.written.fields.get("Status"))[0] for block in blocks)]
    todo = max((one for one in found if one is not None), key=FURTHER.index, default=None)
    if state is None or todo is None:
        only = state or todo or Status.NOT_STARTED
        if is_unread:  # a word that is no status says something all the same: it is listed, not passed over
            work.drift("status", "" if raw is None else raw, line or "", only.marker)
        return only
    settled = further(state, todo)
    if state is not todo:
        work.drift("status", state.marker, todo.marker, settled.marker)
        work.imported["status_of_todo" if settled is state else "status_of_state"] = str(todo if settled is state else state)
    return settled


def _priority(work: Settling) -> Priority:
    raw = work.raw.get("priority")
    state = priority_in(raw)
    if raw is not None and state is None:
        work.keep_value("priority", raw)
    line = work.written.fields.get("Priority")
    todo = priority_in(line) if line else None
    if line and todo is None:
        work.keep_line("Priority", line)
    section = work.slot.block.section if work.slot.block else None
    return work.chosen("priority", state, todo or section) or Priority.MEDIUM


def _text(work: Settling, key: str) -> str:
    value = work.raw.get(key)
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and key == "effort":
        return str(value)
    work.keep_value(key, value)
    return ""


def _plain(work: Settling, key: str, name: str) -> str:
    todo = work.written.fields.get(name, "")
    return one_line(work.chosen(key, _text(work, key), todo) or "")


def _description(work: Settling) -> str:
    """Where one holds the other, the fuller; two different ones are both kept, state.json's first."""
    state, todo = _text(work, "description").strip("\n"), work.written.description
    for block in work.slot.more_blocks:
        todo = _fuller(todo, block.written.description)
    settled = _fuller(state, todo)
    if settled not in (state, todo):
        work.drift("description", _short(state), _short(todo), "both, state.json's first")
    return settled


def _fuller(one: str, other: str) -> str:
    """Both, unless one holds the other."""
    if one_line(other) in one_line(one):
        return one
    return other if one_line(one) in one_line(other) else f"{one}\n\n{other}"


def _times(work: Settling) -> dict[str, str]:
    found = {}
    for key in _TIMES:
        raw = work.raw.get(key)
        state = time_in(raw)
        if raw is not None and state is None:
            work.keep_value(key, raw)
        line = work.written.fields.get(key.capitalize()) if key in ("started", "completed") else None
        todo = time_in(line)
        if line and todo is None:
            work.keep_line(key.capitalize(), line)
        if state and todo and state.startswith(todo[:10]):
            todo = None
        found[key] = work.chosen(key, state, todo) or ""
    return found


def _dependencies(work: Settling) -> tuple[int, ...]:
    raw = work.raw.get("dependencies")
    values = raw if isinstance(raw, list) else [] if raw is None else [raw]
    state: list[int] = []
    for value in values:
        number = number_in(value)
        numbers, words = ((number,), "") if number else dependencies_of(value) if isinstance(value, str) else ((), "?")
        state += [one for one in numbers if one != work.slot.number]
        if words or (not numbers and value not in ("", "none", "None")):
            work.keep_value("dependencies", raw)
    line = work.written.fields.get("Dependencies", "")
    todo, words = dependencies_of(line)
    if words or work.slot.number in todo:
        work.keep_line("Dependencies", line)
    todo = tuple(one for one in todo if one != work.slot.number)
    if state and todo and set(state) == set(todo):
        return todo
    return tuple(dict.fromkeys(work.chosen("dependencies", tuple(state) or None, todo or None) or ()))


def _reason(work: Settling, status: Status) -> str:
    todo = work.written.fields.get("Blocking Reason", "")
    state = _text(work, "blocking_reason")
    if status in NEED_REASON:
        return one_line(work.chosen("blocking_reason", state, todo) or "") or NO_REASON
    work.keep_value("blocking_reason", state)
    if todo:
        work.keep_line("Blocking Reason", todo)
    return ""


def _artifacts(work: Settling, place: Place) -> tuple[TaskArtifact, ...]:
    raw = work.raw.get("artifacts")
    found: dict[str, TaskArtifact] = {}
    for value in raw if isinstance(raw, list) else [] if raw is None else [raw]:
        path = value if isinstance(value, str) else value.get("path") if isinstance(value, Mapping) else None
        if not isinstance(path, str) or not path.strip() or place(path) in found:
            work.imported.setdefault("artifacts", []).append(value)
            continue
        more = value if isinstance(value, Mapping) else {}
        kind, summary = more.get("type"), more.get("summary")
        extra = {key: one for key, one in more.items() if key not in ("path", "type", "summary")}
        extra |= {
            f"imported_{key}": one for key, one in (("type", kind), ("summary", summary)) if one is not None and not isinstance(one, str)
        }
        found[place(path)] = TaskArtifact(
            type=kind if isinstance(kind, str) and kind else _kind_of(path),
            path=place(path),
            summary=summary if isinstance(summary, str) else "",
            extra=extra,
        )
    for name, kind in (("Research", "research"), ("Implementation", "implementation")):
        for path in _linked(work, name, place):
            found.setdefault(path, TaskArtifact(type=kind, path=path))
    return tuple(found.values())


def _linked(work: Settling, name: str, place: Place) -> list[str]:
    """Where the links of a line lead. A line that says more than its links is kept besides."""
    line = work.written.fields.get(name)
    if not line:
        return []
    links = _LINK.findall(line)
    if not links or not _NO_WORDS.fullmatch(_LINK.sub("", line)) or any(one_line(label) not in path for label, path in links):
        work.keep_line(name, line)
    return [place(path) for _, path in links]


def _plans(work: Settling, place: Place) -> tuple[str, tuple[PlanVersion, ...]]:
    state = _text(work, "plan_path")
    linked = _linked(work, "Plan", place)
    todo = linked[-1] if linked else ""
    for more in linked[:-1]:
        work.imported.setdefault("plans", []).append(more)
    versions = []
    raw = work.raw.get("plan_versions")
    for value in raw if isinstance(raw, list) else [] if raw is None else [raw]:
        number = number_in(value.get("version")) if isinstance(value, Mapping) else None
        if number is None or not isinstance(value.get("path"), str):
            work.imported.setdefault("plan_versions", []).append(value)
            continue
        texts = {key: value[key] for key in ("created", "reason") if isinstance(value.get(key), str)}
        extra = {key: one for key, one in value.items() if key not in ("version", "path", "created", "reason")}
        # Under its own name it would be read as what it is not.
        extra |= {f"imported_{key}": value[key] for key in ("created", "reason") if key not in texts and value.get(key) is not None}
        versions.append(PlanVersion(version=number, path=place(value["path"]), **texts, extra=extra))
    return work.chosen("plan_path", place(state), todo) or "", tuple(versions)


def _list_of_text(work: Settling, key: str) -> tuple[str, ...]:
    raw = work.raw.get(key)
    if isinstance(raw, list) and all(isinstance(one, str) for one in raw):
        return tuple(raw)
    work.keep_value(key, raw)
    return ()


def _parent(work: Settling) -> int | None:
    raw = work.raw.get("parent")
    number = number_in(raw) if raw is not None else None
    if number is None:
        work.keep_value("parent", raw)
    return number


def _extra(work: Settling) -> dict[str, Any]:
    extra = {key: value for key, value in work.raw.items() if key not in _USED}
    if number_in(work.raw.get("project_number")) is None:
        work.keep_value("project_number", work.raw.get("project_number"))
    wanted = work.slot.wanted
    if wanted is not None and wanted != work.slot.number:
        work.imported["project_number"] = wanted
    if work.imported:
        extra["imported"] = work.imported | ({"before": extra["imported"]} if "imported" in extra else {})
    return extra


def _kind_of(path: str) -> str:
    parts = (("report", "research"), ("research", "research"), ("plan", "plan"), ("summar", "summary"))
    return next((kind for part, kind in parts if part in path.lower()), "implementation")


def _short(text: str) -> str:
    return one_line(text)[:80]
