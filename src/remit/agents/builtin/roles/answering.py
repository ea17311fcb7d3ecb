"""How the built-in roles hand back their work: a file where it is wanted, a return of two to five sentences, a child's return as one's own.

Used by the built-ins beside it.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from remit.core.errors import ErrorInfo, Failed, Misused
from remit.core.result import Return
from remit.flow.context import Context
from remit.system.files import atomic_write
from remit.system.threads import off_loop

Words = Annotated[str, Field(min_length=1, description="What is to be done, in words.")]
"""The one parameter that every role has which is asked in words."""
SUMMARY_LENGTH = 400
READ_BYTES = 512 * 1024
"""Of one report or plan that is read."""


def shortly(text: str, most: int) -> str:
    """On one line, without signs that nobody can see, and cut where it is longer: between words, if it has several."""
    flat = " ".join("".join(sign if sign.isprintable() else " " for sign in text[: 20 * most]).split())
    if len(flat) <= most:
        return flat
    return (flat[: most - 1].rpartition(" ")[0].rstrip(",;:. ") or flat[: most - 1]) + "…"


def answered(status: str, summary: str, *, errors: Iterable[ErrorInfo] = (), **more: Any) -> dict[str, Any]:
    return {
        "status": status,
        "summary": shortly(summary, SUMMARY_LENGTH),
        "artifacts": [],
        "errors": [error.to_dict() for error in errors],
        **more,
    }


def handed_on(returned: Return) -> dict[str, Any]:
    """A child's return as one's own: the metadata are this delegation's."""
    return {
        **returned.extra,
        "status": str(returned.status),
        "summary": returned.summary,
        "artifacts": [{"type": one.type, "path": one.path, "summary": one.summary} for one in returned.artifacts],
        "errors": [error.to_dict() for error in returned.errors],
        "next_steps": returned.next_steps,
        "data": returned.data,
    }


async def put(ctx: Context, text: str, wanted: str | None, name: str, type_: str, summary: str) -> str:
    """Write the work where it is wanted, else into the delegation's own folder; and name it as an artifact. Its path from the root."""
    place = _inside(ctx.workspace, wanted) if wanted else ctx.scratch / name

    def write() -> None:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(place, text.encode("utf-8", "replace"))
        except OSError as error:
            raise Failed(f"{wanted or name} could not be written: {error.strerror or error}.", advice="Check the folder.") from None

    await off_loop(write)
    ctx.artifact(place, type_, summary)
    return str(place.relative_to(ctx.root)) if place.is_relative_to(ctx.root) else str(place)


async def read(ctx: Context, path: str) -> str:
    """The text of a file of the project; empty where there is none, or it is not to be read."""

    def text() -> str:
        try:
            with _inside(ctx.workspace, path).open("rb") as opened:
                return opened.read(READ_BYTES).decode("utf-8", "replace").replace("\r\n", "\n")
        except (OSError, Misused):
            return ""

    return await off_loop(text)


def title_of(ctx: Context, task: str) -> str:
    """Of the task of the board, else the first line of what is asked."""
    if ctx.task is not None and ctx.task.title.strip():
        return shortly(ctx.task.title, 200)
    return shortly(task.strip().partition("\n")[0], 120) or "Task"


def description_of(ctx: Context, task: str) -> str:
    """What is to be done, in the task's own words."""
    if ctx.task is not None and (ctx.task.title.strip() or ctx.task.description.strip()):
        return ctx.task.description.strip()
    return task.strip()


def plain_list(value: Any) -> list[str]:
    """Paths or words that were given as one text, a list, or not at all."""
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return [str(part.get("path", "")) if isinstance(part, Mapping) else str(part) for part in value]
    return []


def _inside(root: Path, path: str) -> Path:
    """A place in the project, wherever links lead. Raises `Misused`."""
    top = root.resolve()
    place = (top / path).resolve() if "\0" not in path else None
    if place is None or not place.is_relative_to(top) or place == top:
        raise Misused(f"{path!r} is no file inside of the project.", advice="Name it by its path from the project's root.")
    return place
