"""`remit board`: the tasks as they stand, in the terminal or as a picture. Reads only, except for `import`."""

from remit.cli.exits import Exit
from remit.cli.options import Json, Root


def board(root: Root = None, as_json: Json = False) -> Exit:
    """Show the tasks."""
    from remit.board.book import Board
    from remit.cli.output import say, say_json
    from remit.cli.project import find_root

    seen = Board(find_root(root)).look()
    if as_json:
        from remit.board.entries import state_to_data

        say_json(state_to_data(seen.state))
        return Exit.OK
    for task in seen.state.tasks:
        say(f"{task.number:>4}  [{task.status.marker}]  {task.title}")
    return Exit.OK
