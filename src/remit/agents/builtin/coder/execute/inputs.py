"""Files that the code finds in its work folder: taken from the workspace, as the policy allows, or given as text."""

import os

from remit.agents.builtin.worker.workspace import at
from remit.core.errors import Misused
from remit.core.policy import Effect
from remit.flow.context import Context
from remit.sandbox.limits import MEBIBYTE
from remit.sandbox.wire import is_plain
from remit.system.beneath import Place, Root

MOST_FILES = 200
MOST_BYTES = 64 * MEBIBYTE


async def taken_in(ctx: Context, files: list[str] | dict[str, str] | None) -> dict[str, bytes]:
    """By the names they get inside."""
    if not files:
        return {}
    if len(files) > MOST_FILES:
        raise Misused(f"{len(files)} files are too many to take in.", advice=f"At most {MOST_FILES}; put them into an archive.")
    if isinstance(files, dict):
        held = {_named(name): text.encode("utf-8", "surrogatepass") for name, text in files.items()}
        _room(held)
        return held
    held = {}
    for path in files:
        await ctx.permit(path=path)
        held |= await at(ctx, path, Effect.READ, _read)
        _room(held)
    return held


def _named(name: str) -> str:
    plain = name.removeprefix("./")
    if not is_plain(plain):
        raise Misused(f"{name!r} cannot be the name of a file to take in.", advice="Use a path below the work folder, without .. in it.")
    return plain


def _room(held: dict[str, bytes]) -> None:
    if sum(map(len, held.values())) > MOST_BYTES:
        raise Misused("The files to take in are too large.", advice=f"At most {MOST_BYTES // MEBIBYTE} MB together.")


def _read(root: Root, place: Place) -> dict[str, bytes]:
    with os.fdopen(place.open_file(), "rb") as file:
        content = file.read(MOST_BYTES + 1)
    return {_named(place.path): content}
