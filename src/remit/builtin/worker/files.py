"""The worker's file operations: read, write, delete, list and search, in the workspace and never outside.

`workspace` and `system.beneath` keep paths inside."""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import os
import stat
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from remit.agents.function import agent
from remit.builtin.worker.encodings import BASE64, Piece, check_encoding, read_piece
from remit.builtin.worker.workspace import GIT, OURS, Halt, act_at, build_return, display_path, error_dict, format_size, secret_names
from remit.core.context import Context
from remit.core.errors import Failed, Misused, Refused
from remit.core.policy import Effect
from remit.core.text import plural
from remit.system.beneath import Place, Root, kind_of, leads_out, parts_of, shown
from remit.system.folder_walk import Entry, Walk, asked_from, rules_above
from remit.system.globs import BadPattern, compile_glob
from remit.system.processes import MARK
from remit.system.threads import off_loop

if TYPE_CHECKING:
    from remit.system.edits import RemovalReport

READ_BYTES = 256 * 1024
MOST_BYTES = 16 * 1024 * 1024
"""Maximum size of one answer or parameter: both are recorded."""
MOST_OFFSET = 1 << 62
"""Larger than any file; the system cannot handle larger offsets."""
_SPARE_SECONDS = 0.5
_TURN = 20
_DOCUMENTS = (".md", ".markdown", ".rst", ".txt", ".adoc", ".org", ".tex", ".pdf", ".docx")
_DATA = (".json", ".jsonl", ".csv", ".tsv", ".yaml", ".yml", ".xml", ".log", ".sqlite", ".parquet", ".png", ".jpg", ".gif", ".svg", ".zip")

Encoding = Annotated[str, Field(description="utf-8, utf-16, cp1252, …; base64 for bytes.")]
InWorkspace = Annotated[str, Field(description="Relative to the workspace; no '..'.")]


@agent("worker.read_file", effects=("read",), acts_on={"path": "path"})
async def read_file(
    ctx: Context,
    path: InWorkspace,
    offset: Annotated[int, Field(ge=0, le=MOST_OFFSET, description="Where to begin, in bytes.")] = 0,
    limit: Annotated[int, Field(ge=1, le=MOST_BYTES, description=f"How much to read, in bytes; {READ_BYTES} unless given.")] | None = None,
    encoding: Encoding | None = None,
) -> dict[str, Any]:
    """Read a file of the workspace: text, or base64 for binary content; a part of it by byte offset and limit."""
    chosen = None if encoding is None else check_encoding(encoding)

    def act(root: Root, place: Place) -> tuple[Piece, os.stat_result]:
        with os.fdopen(place.open_file(), "rb") as file:
            found = os.fstat(file.fileno())
            return read_piece(file.fileno(), found.st_size, offset, limit or READ_BYTES, chosen), found

    return _build_read_return(path, *await act_at(ctx, path, Effect.READ, act))


def _build_read_return(path: str, piece: Piece, found: os.stat_result) -> dict[str, Any]:
    size = max(found.st_size, piece.end if piece.bytes_read else 0)  # a file may have grown
    is_cut = piece.end < size
    data: dict[str, Any] = {
        "path": path,
        "content": piece.content,
        "encoding": piece.encoding,
        "offset": piece.offset,
        "bytesRead": piece.bytes_read,
        "sizeBytes": size,
        "truncated": is_cut,
        "nextOffset": piece.end if is_cut else None,
        "modifiedAt": _time_of(found),
        **({"notes": [piece.note]} if piece.note else {}),
    }
    what = "bytes, not text" if piece.encoding == BASE64 else f"{piece.encoding.upper()} text"
    summary = f"{display_path(path)} was read from byte {piece.offset:,} to {piece.end:,} of {size:,}. The content is {what}."
    return build_return(summary, data, piece.note, next_steps=f"Read on with offset={piece.end}." if is_cut else "")


@agent("worker.write_file", effects=("write",), acts_on={"path": "path"})
async def write_file(
    ctx: Context,
    path: InWorkspace,
    content: Annotated[str, Field(max_length=MOST_BYTES, description="The whole new content: the old one is replaced.")],
    create_parents: Annotated[bool, Field(description="Make the folders that are missing.")] = False,
    encoding: Encoding = "utf-8",
) -> dict[str, Any]:
    """Write a file of the workspace, whole or not at all; its permissions are kept."""
    from remit.system.edits import replace_file

    raw = _encode(content, check_encoding(encoding))
    if "/".join(parts_of(path, str(ctx.workspace))).startswith("~"):
        raise Misused(f"{shown(path)} begins with ~, which is not expanded.", advice="Give a path relative to the workspace.")
    halt = Halt()

    def act(root: Root, place: Place) -> tuple[bool, str]:
        if place.name == ".":
            raise Misused(f"{shown(path)} is a folder, not a file.", advice="Name a file in it.")
        return replace_file(place, raw, halt), place.path

    try:
        if create_parents:
            await _make_parents(ctx, path)
        is_new, where = await act_at(ctx, path, Effect.WRITE, act, halt=halt, content=raw)
    except Failed as error:
        if error.code != "FILE_NOT_FOUND":
            raise
        advice = f"Give create_parents=true to have it made. {error.advice}"  # the file need not exist: its folder is missing
        raise Failed(f"There is no folder to write {shown(path)} in.", code=error.code, advice=advice) from None
    if raw:
        ctx.artifact(where, _type_of(where), f"{'Written' if is_new else 'Rewritten'}: {format_size(len(raw))}.")
    data = {"path": path, "created": is_new, "sizeBytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest(), "encoding": encoding}
    return build_return(f"{display_path(path)} was {'made' if is_new else 'replaced'}. It now has {format_size(len(raw))}.", data)


async def _make_parents(ctx: Context, path: str) -> None:
    """Make the missing folders above `path`."""
    from remit.system.edits import make_folder

    def make(root: Root, place: Place) -> None:
        found = place.stat()
        if found is None:
            make_folder(place)
        elif not stat.S_ISDIR(found.st_mode):
            raise Misused(f"{shown(place.asked)} is {kind_of(found)}, not a folder.", advice="Choose another path, or delete it first.")

    parts = parts_of(path, str(ctx.workspace))
    for number in range(1, len(parts)):
        await act_at(ctx, "/".join(parts[:number]), Effect.WRITE, make)


@agent("worker.delete_file", effects=("delete",), acts_on={"path": "path"})
async def delete_file(
    ctx: Context,
    path: InWorkspace,
    recursive: Annotated[bool, Field(description="A folder with all that is in it.")] = False,
) -> dict[str, Any]:
    """Delete a file, a link (never what it names) or, with recursive, a folder of the workspace and all that is in it."""
    from remit.system.edits import remove_one, remove_tree

    halt = Halt(max(0.0, ctx.remaining - _SPARE_SECONDS))
    if recursive:
        await _need_allowed(ctx, path, halt)

    def act(root: Root, place: Place) -> "tuple[str, RemovalReport]":
        if place.name == ".":
            raise leads_out(path, "is the workspace itself", "Delete what is in it by its own path.")
        found = place.need()
        kind = kind_of(found)
        if not stat.S_ISDIR(found.st_mode):
            return kind, remove_one(place)
        if not recursive:
            with _opened(place) as folder:
                if os.listdir(folder):
                    message = f"{shown(place.asked)} is not empty."
                    raise Misused(message, advice="Give recursive=true to delete it with all that is in it.")
            return kind, remove_one(place)
        return kind, remove_tree(place, halt)

    kind, removed = await act_at(ctx, path, Effect.DELETE, act, follow=False, halt=halt, content=b"")
    return _build_removal_return(path, kind, removed)


def _build_removal_return(path: str, kind: str, removed: "RemovalReport") -> dict[str, Any]:
    data: dict[str, Any] = {
        "path": path,
        "type": {"a file": "file", "a folder": "folder", "a link": "link"}.get(kind, "other"),
        "deleted": not removed.left,
        "filesDeleted": removed.files,
        "foldersDeleted": removed.folders,
        "sizeBytes": removed.size_bytes,
    }
    what = f"{plural(removed.files, 'file')} and {plural(removed.folders, 'folder')}, {format_size(removed.size_bytes)}"
    if not removed.left:
        said = f"It was {kind}; {what} in all." if removed.folders else f"It was {kind} of {format_size(removed.size_bytes)}."
        return build_return(f"{display_path(path)} was deleted. {said}", data)
    data["left"] = removed.faults
    left = f"{plural(removed.left, 'entry', 'entries')} could not be deleted"
    message = f"{left}: {'; '.join(removed.faults[:3])}"[:500]
    error = error_dict("execution", "UNKNOWN_ERROR", message, "Look at what is left, and delete it again.")
    summary = f"{display_path(path)} was deleted in part: {what}. {left}."
    return build_return(summary, data, status="partial", errors=[error])


@contextlib.contextmanager
def _opened(place: Place) -> Iterator[int]:
    """An open folder, closed at the end."""
    folder = place.open_folder()
    try:
        yield folder
    finally:
        os.close(folder)


async def _need_allowed(ctx: Context, path: str, halt: Halt) -> None:
    """Check everything in a folder against the policy before anything is deleted."""

    def act(root: Root, place: Place) -> list[str]:
        if place.name == "." or not stat.S_ISDIR(place.need().st_mode):
            return []
        held = []
        with _opened(place) as folder:
            for entry in Walk(stop=halt, shows_own=True).entries(folder):
                where = f"{place.path}/{entry.path}"
                if _why_kept(entry.name) is not None:
                    raise leads_out(path, f"contains {shown(where)}", "It belongs to git or remit; delete other entries one by one.")
                held.append(where)
        return held

    async for where, refusal in _find_refused(ctx, "", await act_at(ctx, path, Effect.DELETE, act, follow=False, halt=halt)):
        message = f"{shown(path)} contains {shown(where)}, so nothing was deleted. {refusal.message}"
        raise Refused(message, code=refusal.code, advice="Delete the other entries by their own paths.")


async def _find_refused(ctx: Context, prefix: str, paths: Iterable[str]) -> AsyncIterator[tuple[str, Refused]]:
    """Paths that the policy refuses, each with its refusal."""
    for number, path in enumerate(paths, 1):
        if number % _TURN == 0:
            await asyncio.sleep(0)  # let other tasks run
        try:
            await ctx.permit(path=_text(prefix + path))
        except Refused as refusal:
            yield path, refusal


def _why_kept(name: str) -> str | None:
    return "it belongs to git or remit" if name.casefold() in (GIT, OURS) else None


def _type_of(path: str) -> str:
    name = path.lower()
    return "documentation" if name.endswith(_DOCUMENTS) else "data" if name.endswith(_DATA) else "implementation"


def _encode(content: str, encoding: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True) if encoding == BASE64 else content.encode(encoding)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise Misused(f"The content is not valid {encoding}: {error}.", advice="Send text, or base64 for bytes.") from None


MOST_ENTRIES = 10_000
MOST_MATCHES = 1_000
_SPARE_SHARE, _SPARE_MOST = 0.15, 2.0
"""Share of the time reserved for returning the result."""

Glob = Annotated[
    str, Field(max_length=1000, description="Only these: *.py is a name in any folder, src/**/*.py a path; {a,b}, [a-z] and ? too.")
]


@agent("worker.list_files", effects=("read",), acts_on={"path": "path"})
async def list_files(
    ctx: Context,
    path: InWorkspace = ".",
    pattern: Glob | None = None,
    max_depth: Annotated[int, Field(ge=1, description="1: the folder itself, without what is in its folders.")] | None = None,
    max_results: Annotated[int, Field(ge=1, le=MOST_ENTRIES, description="Files and folders to hand back, at most.")] = MOST_ENTRIES,
    include_ignored: Annotated[bool, Field(description="Also what .gitignore leaves out.")] = False,
) -> dict[str, Any]:
    """List the files and folders below a folder of the workspace, but for what git ignores; pattern and max_depth narrow it down."""
    matches = None if pattern is None else _glob(pattern)
    prefix = "".join(f"{part}/" for part in parts_of(path, str(ctx.workspace)))
    halt = Halt(_seconds(ctx))

    def act(root: Root, place: Place) -> tuple[list[dict[str, Any]], bool]:
        rules = () if include_ignored else asked_from(rules_above(root, place.inside), place.inside)
        walk = Walk(max_depth=max_depth, stop=halt, rules=rules, keeps_ignored=include_ignored)
        with _opened(place) as folder:
            found = (entry for entry in walk.entries(folder) if matches is None or matches.fullmatch(entry.path))
            described = (_describe(entry, status, prefix) for entry in found if (status := entry.stat()) is not None)
            entries = list(islice(described, max_results + 1))
        return entries[:max_results], bool(len(entries) > max_results or walk.was_stopped or walk.too_deep or walk.unreadable)

    entries, is_cut = await act_at(ctx, path, Effect.READ, act, halt=halt)
    folders = sum(entry["type"] == "folder" for entry in entries)
    data = {"path": path, "entries": entries, "files": len(entries) - folders, "folders": folders, "truncated": is_cut}
    cut = "It is not complete: name a folder, a pattern or a depth, or give it a longer timeout." if is_cut else ""
    said = (
        f"{plural(len(entries) - folders, 'file')} and {plural(folders, 'folder')} are listed." if entries else "There is nothing to list."
    )
    return build_return(f"{display_path(path) if prefix else 'The workspace'} was listed. {said}", data, cut)


def _describe(entry: Entry, found: os.stat_result, prefix: str) -> dict[str, Any]:
    return {
        "path": _text(prefix + entry.path),
        "type": "folder" if entry.is_folder else "link" if entry.is_link else "file" if stat.S_ISREG(found.st_mode) else "other",
        "sizeBytes": found.st_size,
        "modifiedAt": _time_of(found),
    }


def _time_of(found: os.stat_result) -> str:
    return datetime.fromtimestamp(found.st_mtime, UTC).isoformat(timespec="seconds")


@agent("worker.search_files", effects=("read",), acts_on={"path": "path"})
async def search_files(
    ctx: Context,
    pattern: Annotated[str, Field(description="Literal text, or a regular expression with regex=true; within one line.")],
    path: InWorkspace = ".",
    recursive: Annotated[bool, Field(description="Also in the folders below path.")] = True,
    regex: Annotated[bool, Field(description="pattern is a regular expression, not text.")] = False,
    ignore_case: Annotated[bool, Field(description="Capital and small letters are the same.")] = False,
    glob: Glob | None = None,
    context_lines: Annotated[int, Field(ge=0, le=20, description="Lines to show before and after each match.")] = 0,
    max_results: Annotated[int, Field(ge=1, le=MOST_MATCHES * 5, description="Matching lines to hand back, at most.")] = MOST_MATCHES,
    include_ignored: Annotated[bool, Field(description="Also what .gitignore leaves out.")] = False,
) -> dict[str, Any]:
    """Find text in the files of the workspace, but for what git ignores and what is not text: each match with file, line and column."""
    from remit.builtin.worker.search import Search, SearchRequest

    request = SearchRequest(
        pattern=pattern, is_regex=regex, ignores_case=ignore_case, is_recursive=recursive, glob=glob, context_lines=context_lines,
        max_results=max_results, keeps_ignored=include_ignored, stop_at=time.monotonic() + _seconds(ctx),
        environment={name: value for name, value in ctx.environment().items() if name == MARK},
    )  # fmt: skip
    request.check()
    if glob is not None:
        _glob(glob)
    search = Search(request)
    try:
        found = await act_at(ctx, path, Effect.READ, search.run)
    except asyncio.CancelledError:
        search.kill()
        raise
    prefix = "".join(f"{part}/" for part in parts_of(path))
    refused = await _find_forbidden(ctx, prefix, dict.fromkeys(one["path"] for one in found.matches if one["path"]))
    matches = [{**one, "path": _text(prefix + one["path"] if one["path"] else path)} for one in found.matches if one["path"] not in refused]
    notes = [f"{plural(len(refused), 'file')} left out: the policy does not allow reading them."] if refused else []
    notes += ["There are more matches. Name a folder, a glob or a rarer pattern, or raise max_results."] if found.is_cut else []
    data: dict[str, Any] = {
        "path": path,
        "pattern": pattern,
        "matches": matches,
        "matchCount": len(matches),
        "filesSearched": found.files_searched,
        "truncated": found.is_cut or found.out_of_time,
        **({"notes": notes} if notes else {}),
    }
    hits = plural(len(matches), "line matches", "lines match") if matches else "Nothing matches"
    summary = f"{display_path(path) if prefix else 'The workspace'} was searched. {hits}."
    if not found.out_of_time:
        return build_return(summary, data, *notes)
    message = "The search ran out of time; the matches so far are in the data."
    error = error_dict("timeout", "TIMEOUT", message, "Name a folder or a glob, or give it a longer timeout.")
    return build_return(summary, data, *notes, status="partial", errors=[error])


async def _find_forbidden(ctx: Context, prefix: str, paths: Iterable[str]) -> set[str]:
    """Files that the policy does not allow to be read, also under the name of a secret file that they are a hard link to."""
    halt = Halt(_seconds(ctx))

    def known_as() -> dict[str, str]:
        with Root(str(ctx.workspace)) as root:
            return secret_names(root, [prefix + path for path in paths], halt)

    names = await off_loop(known_as) if paths else {}
    refused = {path async for path, _ in _find_refused(ctx, prefix, paths)}
    return refused | {
        path for path in paths if prefix + path in names and [one async for one in _find_refused(ctx, "", [names[prefix + path]])]
    }


def _seconds(ctx: Context) -> float:
    left = ctx.remaining
    return left - min(_SPARE_MOST, left * _SPARE_SHARE)


def _glob(pattern: str) -> Any:
    try:
        return compile_glob(pattern)
    except BadPattern as error:
        raise Misused(f"The pattern {shown(pattern)} {error}.", advice="Use a simpler one, e.g. *.py or src/**/*.py.") from None


def _text(path: str) -> str:
    """For JSON: bytes that are not UTF-8 are escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
