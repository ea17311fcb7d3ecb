"""`remit validate`: what an agent asks before it hands in (S3.9). Exit 0 or 1, each fault on a line."""

from typing import Annotated

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root


def validate(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The return, as JSON or text that holds it; - reads stdin.")],
    session: Annotated[str | None, typer.Option(metavar="ID", help="The session id the return must carry.", show_default=False)] = None,
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Check a return against the contract: exit 0 or 1, each fault on a line."""
    from remit.cli.output import say, say_aside, say_json
    from remit.cli.project import find_root
    from remit.core.errors import InvalidReturn
    from remit.flow.validate import check_return

    folder = find_root(root)
    try:
        checked = check_return(_read(file), session, folder)
    except InvalidReturn as invalid:
        if as_json:
            say_json({"valid": False, "faults": list(invalid.faults)})
        for fault in invalid.faults if not as_json else ():
            say(fault)
        return Exit.FAILED
    if as_json:
        say_json({"valid": True, "faults": [], "warnings": list(checked.warnings), "return": checked.to_dict()})
        return Exit.OK
    for warning in checked.warnings:
        say_aside(f"warning: {warning}")
    say(f"valid: {checked.status}")
    return Exit.OK


def _read(file: str) -> bytes:
    import sys
    from pathlib import Path

    from remit.core.errors import Misused

    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise Misused(f"{file} cannot be read: {error.strerror or error}.", advice="Name the file of the return, or - for stdin.") from None
