"""TODO.md drawn from the board: the same text for the same board, with a person's own text in its place. `todo_merge` reads it back."""

import re
from collections.abc import Iterator

from remit.board.task import Priority, State, Status, Task
from remit.board.todo_parser import MAY_MEAN_MORE, first_plain, guarded, heading_of, one_line, plain, stripped

HEAD = "# TODO"
_PLAIN_PATH = re.compile(r"[\w./+@-]+", re.ASCII)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)T")
_STARTS_PLAIN = re.compile(r"[^\s#>|`~<*+\-\\=\d]|\d+[^.)\d]|\*\*?[^\s*]")
"""How a description may begin on the line of its name; a list, quote or table would lose its meaning there."""
_PARAGRAPH = "\n\n"
_MARKERS = {status: f"- **Status**: [{status.marker}]\n" for status in Status}
_PRIORITIES = {priority: f"- **Priority**: {priority.capitalize()}\n" for priority in Priority}


def draw(state: State) -> str:
    texts = state.texts
    pieces = [texts.get("top", HEAD)]
    by_priority: dict[Priority, list[Task]] = {priority: [] for priority in Priority}
    for task in state.tasks:
        by_priority[task.priority].append(task)
    for priority, tasks in by_priority.items():
        pieces += (texts.get(f"heading:{priority}") or heading_of(priority), texts.get(f"begin:{priority}", ""))
        for task in tasks:
            pieces += (block(task), texts.get(f"after:{task.number}", ""))
        if priority is Priority.LOW:
            pieces += _homeless(state)
        pieces.append(texts.get(f"end:{priority}", ""))
    return _PARAGRAPH.join(filter(None, pieces)) + "\n"


def _homeless(state: State) -> list[str]:
    """Text that followed tasks which are archived by now."""
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
        yield f"- **Research**: {', '.join(map(link_to, dict.fromkeys(found)))}\n"
    if task.plan_path:
        yield f"- **Plan**: {link_to(task.plan_path)}\n"
    if found := paths.get("summary") or paths.get("implementation"):
        yield f"- **Implementation**: {', '.join(map(link_to, dict.fromkeys(found)))}\n"


def link_to(path: str) -> str:
    """Relative to the folder of TODO.md."""
    path = one_line(path)
    target = path.removeprefix("specs/") if path.startswith("specs/") else path if path.startswith("/") else f"../{path}"
    if not _PLAIN_PATH.fullmatch(target):
        from urllib.parse import quote  # rarely needed, and every command draws

        target = quote(target, safe="/.-_~+@")
    return f"[{path.rpartition('/')[2].replace('[', '(').replace(']', ')')}]({target})"


def text_of(data: bytes) -> str:
    """Decode a TODO.md from any editor: a line that is not UTF-8 is read as Latin-1, never refused."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "\n".join(map(_line_of, data.split(b"\n")))


def _line_of(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")
