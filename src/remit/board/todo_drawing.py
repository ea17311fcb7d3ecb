"""TODO.md drawn from the board (S6.2): the same text for the same board, nothing of a person's left out. Pure; `todo` is the door to it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from remit.board.statuses import Status
from remit.board.task import Priority, State, Task
from remit.board.todo_lines import MAY_MEAN_MORE, first_plain, guarded, heading_of, one_line, plain, stripped

HEAD = "# TODO"
_PLAIN_PATH = re.compile(r"[\w./+@-]+", re.ASCII)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T")
_STARTS_PLAIN = re.compile(r"[^\s#>|`~<*+\-\\=\d]|\d+[^.)\d]|\*\*?[^\s*]")
"""How a description may begin on the line of its name; else it would be no list, quote or table any more."""
_PARAGRAPH = _BREAK = "\n\n"
_MARKERS = {status: f"- **Status**: [{status.marker}]\n" for status in Status}
_PRIORITIES = {priority: f"- **Priority**: {priority.capitalize()}\n" for priority in Priority}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the block of a task begins."""

    start: int
    number: int
    section: Priority


@dataclass(frozen=True, slots=True)
class Drawn:
    text: str
    blocks: list[Place]


def draw(state: State) -> str:
    """The text of TODO.md: the same for the same board."""
    return _BREAK.join([piece for _, piece in _pieces(state)]) + "\n"


def draw_placed(state: State) -> Drawn:
    """The same, with where each task stands in it."""
    pieces = _pieces(state)
    places: list[Place] = []
    at = 0
    for task, piece in pieces:
        if task is not None:
            places.append(Place(at, task.number, task.priority))
        at += len(piece) + len(_BREAK)
    return Drawn(_BREAK.join([piece for _, piece in pieces]) + "\n", places)


def _pieces(state: State) -> list[tuple[Task | None, str]]:
    """What stands between blank lines, and whose block it is; None: nobody's."""
    texts = state.texts
    pieces: list[tuple[Task | None, str]] = [(None, texts.get("top", HEAD))]
    by_priority: dict[Priority, list[Task]] = {priority: [] for priority in Priority}
    for task in state.tasks:
        by_priority[task.priority].append(task)
    for priority, tasks in by_priority.items():
        pieces.append((None, texts.get(f"heading:{priority}") or heading_of(priority)))
        pieces.append((None, texts.get(f"begin:{priority}", "")))
        if texts:
            for task in tasks:
                pieces += ((task, block(task)), (None, texts.get(f"after:{task.number}", "")))
        else:
            pieces += [(task, block(task)) for task in tasks]
        if priority is Priority.LOW:
            pieces += [(None, text) for text in homeless(state)]
        pieces.append((None, texts.get(f"end:{priority}", "")))
    return [piece for piece in pieces if piece[1]]


def homeless(state: State) -> list[str]:
    """Text that stood behind tasks which are archived since."""
    if not state.texts:
        return []
    numbers = {str(task.number) for task in state.tasks}
    return [text for key, text in state.texts.items() if key.startswith("after:") and key[6:] not in numbers]


def block(task: Task) -> str:
    """One task as TODO.md has it, its `---` included."""
    head = f"### {task.number}. {one_line(task.title)}\n{_MARKERS[task.status]}"
    if task.effort:
        head += f"- **Effort**: {one_line(task.effort)}\n"
    head += _PRIORITIES[task.priority]
    if task.language:
        head += f"- **Language**: {one_line(task.language)}\n"
    if task.dependencies:
        head += f"- **Dependencies**: {', '.join(map(str, task.dependencies))}\n"
    if task.started:
        head += f"- **Started**: {_day(task.started)}\n"
    if task.completed:
        head += f"- **Completed**: {_day(task.completed)}\n"
    if task.blocking_reason:
        head += f"- **Blocking Reason**: {one_line(task.blocking_reason)}\n"
    if task.artifacts or task.plan_path:
        head += "".join(_links(task))
    description = _description(task)
    if task.lines:
        head += "\n".join(guarded("\n".join(task.lines).split("\n"), before_description=bool(description))) + "\n"
    return f"{head}{description}\n---"


def _description(task: Task) -> str:
    text = task.description
    if not text or text.isspace():
        # Lines that are no fields would be read as the description.
        return "\n**Description**:\n" if task.lines and first_plain(task.lines) < len(task.lines) else ""
    if MAY_MEAN_MORE.search(text):
        text = "\n".join(guarded(plain(text).split("\n")))
    if not text[0].isalpha() or text[-1] == "\n":
        text = "\n".join(stripped(text.split("\n")))
    return f"\n**Description**:{' ' if _STARTS_PLAIN.match(text) else _PARAGRAPH}{text}\n"


def _day(time: str) -> str:
    found = _TIME.match(time)
    return found[1] if found else one_line(time)


def _links(task: Task) -> Iterator[str]:
    paths: dict[str, list[str]] = {}
    for artifact in task.artifacts:
        paths.setdefault(artifact.type, []).append(artifact.path)
    if found := paths.get("research") or paths.get("report"):
        yield f"- **Research**: {', '.join(map(_link, dict.fromkeys(found)))}\n"
    if task.plan_path:
        yield f"- **Plan**: {_link(task.plan_path)}\n"
    if found := paths.get("summary") or paths.get("implementation"):
        yield f"- **Implementation**: {', '.join(map(_link, dict.fromkeys(found)))}\n"


def _link(path: str) -> str:
    """Relative to where TODO.md stands."""
    path = one_line(path)
    target = path.removeprefix("specs/") if path.startswith("specs/") else path if path.startswith("/") else f"../{path}"
    if not _PLAIN_PATH.fullmatch(target):
        from urllib.parse import quote  # only names with spaces and the like need it, and every command draws

        target = quote(target, safe="/.-_~+@")
    return f"[{path.rpartition('/')[2].replace('[', '(').replace(']', ')')}]({target})"
