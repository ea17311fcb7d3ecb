"""TODO.md: drawn from the board (S6.2), and what a person has changed in it read back. Pure: text in, text out.

The door to `todo_drawing` and `todo_merging`; the only one the rest of the program uses. Reading back is loaded when somebody has edited
the file: most commands find it as it was drawn.
"""

from typing import TYPE_CHECKING, Any

from remit.board.todo_drawing import HEAD, block, draw

if TYPE_CHECKING:
    from remit.board.todo_merging import Merged, merge

__all__ = ["HEAD", "Merged", "block", "draw", "merge", "text_of"]


def __getattr__(name: str) -> Any:
    if name not in ("Merged", "merge"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from remit.board import todo_merging

    return getattr(todo_merging, name)


def text_of(data: bytes) -> str:
    """The bytes of a TODO.md as text, whatever editor saved them: a line that is no UTF-8 is read as Latin-1, never refused."""
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
