"""`remit board`: the tasks as they stand, in the terminal or as a picture; one task in full. `board_group` is the command of several."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from remit.cli.completing import some_languages, some_priorities, some_statuses, some_tasks
from remit.cli.declaring import argument, option
from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from remit.board.view import View


Status = Annotated[str, option(help="Only tasks with these, like planned,blocked; or running, ready, waiting.", offering=some_statuses)]
Priority = Annotated[str, option(help="Only high, medium or low.", offering=some_priorities)]
Language = Annotated[str, option(help="Only tasks with this language.", offering=some_languages)]
Every = Annotated[bool, option("--all", help="All of them, the archive too, however many there are.")]
Svg = Annotated[Path | None, option(metavar="FILE", help="Draw the dependencies into an SVG file.", show_default=False)]
Html = Annotated[Path | None, option(metavar="FILE", help="The same with the list of tasks as a web page.", show_default=False)]


def draw(
    *,
    status: Status = "",
    priority: Priority = "",
    language: Language = "",
    every: Every = False,
    svg: Svg = None,
    html: Html = None,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """`remit board` alone."""
    from remit.board.archive import archived_tasks
    from remit.board.board import Board
    from remit.board.view import chosen, view_of
    from remit.cli.output import say_json
    from remit.cli.project import find_root

    _check_streams(svg, html, as_json=as_json)
    place = Board(find_root(root))
    view = view_of(place, archived_tasks(place), with_archive=every)
    view = chosen(view, status=status, priority=priority, language=language)
    written = [str(_drawn(view, path, kind)) for path, kind in ((svg, "svg"), (html, "html")) if path is not None]
    if as_json:
        say_json({**view.to_dict(), **({"written": written} if written else {})})
    elif written:
        _tell(view, written)
    else:
        from remit.cli.board_drawing import print_board

        print_board(view, every=every)
    return Exit.OK


def show(
    number: Annotated[str | None, argument(metavar="N", help="Its number.", show_default=False, offering=some_tasks)] = None,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Show one task in full: what it waits for, its reports, the phases of its plan, what was delegated for it."""
    from remit.board.board import Board
    from remit.cli.project import find_root
    from remit.cli.task_page import show_task

    return show_task(Board(find_root(root)), number, as_json=as_json)


def _drawn(view: "View", path: Path, kind: str) -> Path:
    """The picture, written whole or not at all; `-` writes it to stdout."""
    import sys

    from remit.system.files import atomic_write

    title = f"Tasks of {view.project}"
    if kind == "svg":
        from remit.board.picture import draw

        text = draw(view, title)
    else:
        from remit.board.page import page

        text = page(view, title)
    if str(path) == "-":
        sys.stdout.write(text)
        return path
    _check_place(path)
    atomic_write(path, text.encode("utf-8", "replace"))
    return path


def _check_streams(svg: Path | None, html: Path | None, *, as_json: bool) -> None:
    """Stdout holds one document."""
    from remit.core.errors import Misused

    if [str(svg), str(html), "-" if as_json else ""].count("-") > 1:
        raise Misused("Only one of --svg -, --html - and --json can go to stdout.", advice="Name a file for the others.")


def _check_place(path: Path) -> None:
    from remit.core.errors import Misused

    if path.is_dir():
        raise Misused(f"{path} is a folder.", advice="Name the file to write.")
    if not path.parent.is_dir():
        raise Misused(f"There is no folder {path.parent}.", advice="Make it first.")


def _tell(view: "View", written: list[str]) -> None:
    from remit.board.graph import circle_words
    from remit.cli.output import say, say_aside

    for path in written:
        if path != "-":
            say(f"{path}: {len(view.tasks):,} task{'s' if len(view.tasks) != 1 else ''}")
    for circle in view.circles[:5]:
        say_aside(f"{circle_words(circle)}.")
