"""Paths of the workspace: resolved below it, kept out of git's and remit's folders, and checked by the policy; and the wording of results.

The workspace is the project, or the caller's own folder. Used by the file operations."""

import asyncio
import contextlib
import math
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from remit.core.context import Context
from remit.core.errors import RemitError, Stopped
from remit.core.policy import Effect
from remit.core.protected_paths import Protection, is_pyproject, protection_of, remit_table
from remit.core.text import plural
from remit.runtime.reply import OperationAnswer
from remit.system.beneath import Place, Root, leads_out, parts_of
from remit.system.folder_walk import Walk
from remit.system.threads import off_loop

GIT, OURS = ".git", ".remit"
READABLE_OF_OURS = frozenset({"scratch", "work"})
"""Left by delegations: reports, diffs, their own folders. Not the database, the sockets, the audit log."""
_HOPS = 8
MOST_SETTINGS_BYTES = 4 << 20
_INSTALLED = frozenset({"node_modules", ".venv", "venv"})
"""Package folders, often hard links to a cache: they contain no secrets."""

T = TypeVar("T")


class _NeedsPermit(Exception):
    """The policy must be asked first: the path leads through a link to another one inside, or remit's settings would change."""

    def __init__(self, needed: "_Permit") -> None:
        super().__init__(needed)
        self.needed = needed


class _Permit(NamedTuple):
    path: str
    protected: str | None = None


class Halt:
    """Whether an operation is still wanted: its delegation was not stopped and its time is not over. For any thread."""

    __slots__ = ("_is_called", "_stop_at")

    def __init__(self, seconds: float = math.inf) -> None:
        self._is_called = False
        self._stop_at = time.monotonic() + seconds

    def call(self) -> None:
        self._is_called = True

    def __call__(self) -> bool:
        return self._is_called or time.monotonic() > self._stop_at


async def act_at(
    ctx: Context,
    path: str,
    effect: Effect,
    act: Callable[[Root, Place], T],
    *,
    follow: bool = True,
    halt: Halt | None = None,
    content: bytes | None = None,
) -> T:
    """Run `act` at the resolved `path`, off the loop. The delegation was allowed for the path as written, see `acts_on`.

    `content`: the new content of the file; empty for a deletion."""
    allowed = {_Permit("/".join(parts_of(path, str(ctx.workspace))) or ".")}
    halt = halt or Halt()

    def checked(root: Root, place: Place) -> T:
        needed = [_Permit(place.path)]
        if content is not None and changes_settings(place, content):
            needed.append(_Permit(place.path, Protection.SETTINGS))
        if effect is Effect.READ:
            needed += map(_Permit, secret_names(root, [place.path], halt).values())
        for one in needed:
            if one not in allowed:
                raise _NeedsPermit(one)
        if halt():
            raise Stopped(f"{path} was not changed: the delegation was stopped.")
        return act(root, place)

    def run() -> T:
        with Root(str(ctx.workspace)) as root, root.place(path, follow=follow) as place:
            check_location(place.inside, path, effect)
            return checked(root, place)

    for _ in range(_HOPS):
        try:
            return await off_loop(run)
        except _NeedsPermit as asks:
            await ctx.permit(**asks.needed._asdict())
            allowed.add(asks.needed)
        except asyncio.CancelledError:
            halt.call()  # the thread continues and must not change anything any more
            raise
    raise leads_out(path, "leads to another place each time it is resolved", "Try again when its links no longer change.")


def check_location(inside: tuple[str, ...], asked: str, effect: Effect) -> None:
    """Refuse paths of git and remit, by where the path really leads."""
    for number, part in enumerate(inside):
        name = part.casefold()
        if name == OURS and (effect is not Effect.READ or inside[number + 1 : number + 2] not in {(one,) for one in READABLE_OF_OURS}):
            advice = "Of .remit only scratch/ and work/ can be read, and nothing written."
            raise leads_out(asked, "is in the folder of remit itself", advice)
        if name == GIT and effect is not Effect.READ:
            raise leads_out(asked, "is in the folder of git itself", "Use git to change what is in it.")


def changes_settings(place: Place, content: bytes) -> bool:
    """Whether `[tool.remit]` of a pyproject.toml would change."""
    if not is_pyproject(place.path):
        return False
    found = place.stat()
    if found is None or not stat.S_ISREG(found.st_mode):
        return remit_table(content) is not None or found is not None
    with os.fdopen(place.open_file(), "rb") as file:
        return remit_table(file.read(MOST_SETTINGS_BYTES)) != remit_table(content)


def secret_names(root: Root, paths: Iterable[str], stop: Callable[[], bool]) -> dict[str, str]:
    """For hard links to a file with secrets: the name that marks it as secret."""
    inodes = {}
    for path in paths:
        with contextlib.suppress(RemitError, OSError), root.place(path, follow=False) as place:
            found = place.stat()
            if found is not None and found.st_nlink > 1 and stat.S_ISREG(found.st_mode):
                inodes[path] = (found.st_dev, found.st_ino)
    if not inodes:
        return {}
    secrets = {}
    for entry in Walk(stop=stop, keeps_ignored=True, closed=_INSTALLED).entries(root.descriptor):
        if not entry.is_folder and protection_of(entry.path) is Protection.SECRET and (found := entry.stat()) is not None:
            secrets[found.st_dev, found.st_ino] = entry.path
    return {path: secrets[inode] for path, inode in inodes.items() if inode in secrets}


# ---- wording

_SUMMARY_CHARACTERS = 390
_PATH_CHARACTERS = 100
_MARKUP = re.compile(r"\*\*|`|<|\]\(|# ")


def build_return(
    summary: str, data: Any, *notes: str, status: str = "completed", errors: Sequence[dict[str, Any]] = (), next_steps: str = ""
) -> dict[str, Any]:
    """A return: the summary with as many notes as fit."""
    for note in notes:
        if note and len(summary) + len(note) < _SUMMARY_CHARACTERS:
            summary += f" {note}"
    answer = {"status": status, "summary": summary, "data": data, "errors": list(errors), "next_steps": next_steps}
    return OperationAnswer(answer) if status == "completed" else answer


def display_path(path: str) -> str:
    """A path for the start of a sentence; a substitute if it is long or would read as markup."""
    is_plain = len(path) <= _PATH_CHARACTERS and path.isprintable() and _MARKUP.search(path) is None
    return path if is_plain and path.strip() == path else "The path"


def error_dict(type_: str, code: str, message: str, advice: str, *, recoverable: bool = True) -> dict[str, Any]:
    return {"type": type_, "code": code, "message": message, "recoverable": recoverable, "recommendation": advice}


def format_size(count: int) -> str:
    if count < 10_000:
        return plural(count, "byte")
    unit, size = next((unit, size) for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if count >= size)
    return f"{count / size:.1f} {unit}"
