"""`worker.list_files` and `worker.search_files` (S5.2): many files of a folder of the workspace, bounded, what git ignores left out.

Searching itself is done by ripgrep or, where there is none, by a process of ours: see `searching`.
"""

import asyncio
import os
import stat
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import Field

from remit.agents.builtin.worker.files import InWorkspace
from remit.agents.builtin.worker.ground import Halt, at
from remit.agents.builtin.worker.ripgrep import find_ripgrep
from remit.agents.builtin.worker.searching import Found, Search, Wanted, need_pattern
from remit.agents.builtin.worker.telling import counted, named, told
from remit.agents.function import FunctionAgent, agent
from remit.core.errors import Misused, Refused
from remit.core.policy import Effect
from remit.flow.context import Context
from remit.system.beneath import Place, Root, parts_of, shown
from remit.system.globs import BadPattern, compile_glob
from remit.system.listing import DEEPEST, Entry, Walk, asked_from, rules_above
from remit.system.processes import MARK

MOST_ENTRIES = 10_000
MOST_MATCHES = 1_000
_TURN = 20
_SPARE_SHARE, _SPARE_MOST = 0.15, 2.0
"""Of the time there is, kept for handing in what was found."""

Glob = Annotated[
    str, Field(max_length=1000, description="Only these: *.py is a name in any folder, src/**/*.py a path; {a,b}, [a-z] and ? too.")
]


@dataclass(slots=True)
class _Listed:
    entries: list[dict[str, Any]] = field(default_factory=list)
    files: int = 0
    folders: int = 0
    size_bytes: int = 0
    left_out: int = 0
    """Those that were found and are not in `entries`."""
    walk: Walk = field(default_factory=Walk)


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

    def act(root: Root, place: Place) -> _Listed:
        listed = _Listed()
        rules = () if include_ignored else asked_from(rules_above(root, place.inside), place.inside)
        listed.walk = Walk(max_depth=max_depth, stop=halt, rules=rules, keeps_ignored=include_ignored)
        folder = place.open_folder()
        try:
            for entry in listed.walk.entries(folder):
                if matches is None or matches.fullmatch(entry.path):
                    _note(listed, entry, prefix, max_results)
        finally:
            os.close(folder)
        return listed

    return _told_listed(path, pattern, await at(ctx, path, Effect.READ, act, halt=halt))


def _note(listed: _Listed, entry: Entry, prefix: str, most: int) -> None:
    if len(listed.entries) >= most:
        listed.left_out += 1
        return
    found = entry.stat()
    if found is None:
        return
    listed.entries.append(
        {
            "path": _text(prefix + entry.path),
            "type": "folder" if entry.is_folder else "link" if entry.is_link else "file" if stat.S_ISREG(found.st_mode) else "other",
            "sizeBytes": found.st_size,
            "modifiedAt": datetime.fromtimestamp(found.st_mtime, UTC).isoformat(timespec="seconds"),
        }
    )
    listed.folders += entry.is_folder
    listed.files += not entry.is_folder
    listed.size_bytes += 0 if entry.is_folder else found.st_size


def _told_listed(path: str, pattern: str | None, listed: _Listed) -> dict[str, Any]:
    walk, notes = listed.walk, []
    if listed.left_out:
        total = len(listed.entries) + listed.left_out
        at_least = " at least" if walk.was_stopped else ""
        notes.append(
            f"Only the first {len(listed.entries):,} of{at_least} {total:,} are listed; name a folder, a pattern or a depth to see others."
        )
    if walk.was_stopped:
        notes.append("Time ran out before everything was looked at.")
    if walk.too_deep:
        notes.append(f"{counted(walk.too_deep, 'folder')} more than {DEEPEST} levels down were not entered.")
    if walk.unreadable:
        notes.append(f"{counted(len(walk.unreadable), 'folder')} could not be read, e.g. {_text(walk.unreadable[0])[:80]}.")
    data: dict[str, Any] = {
        "path": path,
        "entries": listed.entries,
        "files": listed.files,
        "folders": listed.folders,
        "sizeBytes": listed.size_bytes,
        "truncated": bool(listed.left_out or walk.was_stopped or walk.too_deep),
    }
    if notes:
        data["notes"] = notes
    what = f"{counted(listed.files, 'file')} and {counted(listed.folders, 'folder')}"
    fits = " fit the pattern" if pattern is not None else " are in it"
    root = "The workspace" if not parts_of(path) else named(path)
    said = (
        f"{root} was listed. {what}{fits}."
        if listed.entries
        else f"{root} was listed. Nothing{fits.replace('fit', 'fits').replace('are', 'is')}."
    )
    return told(said, data, *notes)


@agent("worker.search_files", effects=("read",), acts_on={"path": "path"})
async def search_files(
    ctx: Context,
    pattern: Annotated[str, Field(description="Text as it stands, or a regular expression with regex=true; within one line.")],
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
    need_pattern(pattern, is_regex=regex)
    if glob is not None:
        _glob(glob)
    wanted = Wanted(
        pattern=pattern,
        is_regex=regex,
        ignores_case=ignore_case,
        is_recursive=recursive,
        glob=glob,
        context_lines=context_lines,
        max_results=max_results,
        keeps_ignored=include_ignored,
        stop_at=time.monotonic() + _seconds(ctx),
        environment={name: value for name, value in ctx.environment().items() if name == MARK},
    )
    search = Search(wanted, program=find_ripgrep())
    try:
        found = await at(ctx, path, Effect.READ, search.run)
    except asyncio.CancelledError:
        search.kill()
        raise
    prefix = "".join(f"{part}/" for part in parts_of(path))
    return _told_found(path, wanted, await _allowed(ctx, prefix, found))


async def _allowed(ctx: Context, prefix: str, found: Found) -> Found:
    """Without what stands in files that the policy lets nobody read: a search is not a way round its rules."""
    refused = set()
    for number, path in enumerate(dict.fromkeys(one["path"] for one in found.matches if one["path"])):
        if number % _TURN == _TURN - 1:
            await asyncio.sleep(0)  # others have their turn
        try:
            await ctx.permit(path=_text(prefix + path))
        except Refused:
            refused.add(path)
    if not refused:
        return found
    note = f"{counted(len(refused), 'file')} left out that the policy does not let be read."
    return replace(found, matches=[one for one in found.matches if one["path"] not in refused], notes=(note, *found.notes))


def _told_found(path: str, wanted: Wanted, found: Found) -> dict[str, Any]:
    prefix = "".join(f"{part}/" for part in parts_of(path))
    matches = [{**one, "path": _text(prefix + one["path"] if one["path"] else path)} for one in found.matches]
    files = len({one["path"] for one in matches})
    notes = []
    if found.is_cut:
        notes.append(
            f"Only {len(matches):,} matches are shown; there are more. Name a folder, a glob or a rarer pattern, or raise max_results."
        )
    if found.out_of_time:
        notes.append("Time ran out before everything was searched.")
    if found.long_lines:
        notes.append(f"{counted(found.long_lines, 'long line')} shown in part.")
    notes += found.notes
    data: dict[str, Any] = {
        "path": path,
        "pattern": wanted.pattern,
        "matches": matches,
        "matchCount": len(matches),
        "filesMatched": files,
        "truncated": found.is_cut or found.out_of_time,
        "searchedWith": found.tool,
    }
    if found.files_searched is not None:
        data["filesSearched"] = found.files_searched
    if notes:
        data["notes"] = notes
    searched = f"{counted(found.files_searched, 'file')} searched. " if found.files_searched is not None else "The search is done. "
    hits = f"{counted(len(matches), 'line matches', 'lines match')}, in {counted(files, 'file')}." if matches else "Nothing matches."
    summary = f"{searched.replace(' searched', ' was searched' if found.files_searched == 1 else ' were searched')}{hits}"
    if not found.out_of_time:
        return told(summary, data, *notes)
    error = {
        "type": "timeout",
        "message": "The search ran out of time; what it had found is here.",
        "code": "TIMEOUT",
        "recoverable": True,
        "recommendation": "Name a folder or a glob, or give it a longer timeout.",
    }
    return told(summary, data, *notes, status="partial", errors=[error])


def _seconds(ctx: Context) -> float:
    left = ctx.remaining
    return left - min(_SPARE_MOST, left * _SPARE_SHARE)


def _glob(pattern: str) -> Any:
    try:
        return compile_glob(pattern)
    except BadPattern as error:
        raise Misused(f"The pattern {shown(pattern)} {error}.", advice="Use a simpler one, e.g. *.py or src/**/*.py.") from None


def _text(path: str) -> str:
    """Names that are no text are shown with their bytes: JSON cannot hold them otherwise."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


LOOKING: list[FunctionAgent] = [list_files, search_files]
