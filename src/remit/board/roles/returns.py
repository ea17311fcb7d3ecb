"""What the built-in roles share: their return, the file they write, and what they read of the task."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from remit.core.errors import ErrorInfo, Failed, Misused
from remit.runtime.context import Context
from remit.system.files import atomic_write
from remit.system.threads import off_loop

Words = Annotated[str, Field(min_length=1, description="What is to be done, in words.")]
SUMMARY_LENGTH = 400
READ_BYTES = 512 * 1024
"""Of one report or plan that is read."""


def shorten(text: str, most: int) -> str:
    """One line without control characters, cut between words where it is longer than `most`."""
    flat = " ".join("".join(sign if sign.isprintable() else " " for sign in text[: 20 * most]).split())
    if len(flat) <= most:
        return flat
    return (flat[: most - 1].rpartition(" ")[0].rstrip(",;:. ") or flat[: most - 1]) + "…"


def answered(status: str, summary: str, *, errors: Iterable[ErrorInfo] = (), **more: Any) -> dict[str, Any]:
    return {
        "status": status,
        "summary": shorten(summary, SUMMARY_LENGTH),
        "artifacts": [],
        "errors": [error.to_dict() for error in errors],
        **more,
    }


async def put(ctx: Context, text: str, wanted: str | None, name: str, type_: str, summary: str) -> str:
    """Write the work to `wanted`, else into the delegation's own folder, and declare it as an artifact. Returns its path from the root.

    A report or plan that exists is never overwritten.
    """
    place = _inside(ctx.workspace, wanted) if wanted else ctx.scratch / name

    def write() -> None:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if wanted and place.exists() and place.stat().st_size:
                raise Failed(f"{wanted} exists already; it stays as it is.", advice="Name a file that does not exist yet.")
            atomic_write(place, text.encode("utf-8", "replace"))
        except OSError as error:
            raise Failed(f"{wanted or name} could not be written: {error.strerror or error}.", advice="Check the folder.") from None

    await off_loop(write)
    ctx.artifact(place, type_, summary)
    return str(place.relative_to(ctx.root)) if place.is_relative_to(ctx.root) else str(place)


async def read(ctx: Context, path: str) -> str:
    """The text of a file of the project; empty where it cannot be read."""

    def text() -> str:
        try:
            with _inside(ctx.workspace, path).open("rb") as opened:
                return opened.read(READ_BYTES).decode("utf-8", "replace").replace("\r\n", "\n")
        except (OSError, Misused):
            return ""

    return await off_loop(text)


def title_of(ctx: Context, task: str) -> str:
    """The title of the board's task, else the first line of the request."""
    if ctx.task is not None and ctx.task.title.strip():
        return shorten(ctx.task.title, 200)
    return shorten(task.strip().partition("\n")[0], 120) or "Task"


def description_of(ctx: Context, task: str) -> str:
    """The description of the board's task, else the request itself."""
    if ctx.task is not None and (ctx.task.title.strip() or ctx.task.description.strip()):
        return ctx.task.description.strip()
    return task.strip()


def plain_list(value: Any) -> list[str]:
    """A list of texts, given as a list, as text with commas, or not at all."""
    if value is None or value == "":
        return []
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return [str(part.get("path", "")) if isinstance(part, Mapping) else str(part) for part in value]
    return []


def _inside(root: Path, path: str) -> Path:
    """A path inside the project after links are resolved. Raises `Misused`."""
    top = root.resolve()
    place = (top / path).resolve() if "\0" not in path else None
    if place is None or not place.is_relative_to(top) or place == top:
        raise Misused(f"{path!r} is not a file inside the project.", advice="Name it by its path from the project's root.")
    return place
