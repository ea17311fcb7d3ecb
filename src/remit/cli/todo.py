"""`remit todo`: archive what is completed or abandoned (S6.9). Delegates nothing; above five tasks it asks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from remit.cli.declaring import option
from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from remit.board.task import Task


def todo(
    dry_run: Annotated[bool, option("--dry-run", help="Show what would be archived, change nothing.")] = False,
    yes: Annotated[bool, option("--yes", "-y", help="Do not ask, however many there are.")] = False,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Archive completed and abandoned tasks with their folders, and tell which folders fit no task."""
    from remit.board.board import Board
    from remit.cli.outcomes import answer
    from remit.cli.project import find_root
    from remit.orchestrator.maintenance import todo as archive

    outcome = archive(Board(find_root(root)), agreed=lambda tasks: yes or _asked(tasks), dry_run=dry_run)
    return answer(outcome, as_json=as_json)


def _asked(tasks: "Sequence[Task]") -> bool:
    """The person at the terminal; without one nobody can agree."""
    import sys

    from typer import confirm

    from remit.cli.cells import cut
    from remit.core.errors import Refused

    if not sys.stdin.isatty() or not sys.stderr.isatty():
        raise Refused(
            f"{len(tasks)} tasks would be archived, and there is no terminal to ask at.",
            advice="`remit todo --dry-run` shows them; `remit todo --yes` archives them.",
        )
    for task in tasks[:20]:
        print(f"  {task.number}. {cut(task.title, 80)} [{task.status.marker}]", file=sys.stderr)
    if len(tasks) > 20:
        print(f"  … and {len(tasks) - 20} more", file=sys.stderr)
    return confirm(f"Archive these {len(tasks)} tasks?", err=True)
