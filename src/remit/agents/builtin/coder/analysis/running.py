"""One analysis from end to end: list, take what is known, read the rest, put it together, write the three files. Blocking.

Knows no context of a delegation: it is given how to speak and when to stop, so that anybody can run it.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from remit.agents.builtin.coder.analysis.cache import Cache, Kept
from remit.agents.builtin.coder.analysis.crew import Crew, Read
from remit.agents.builtin.coder.analysis.findings import Findings, as_data, folder_groups, found, left_out_of_picture
from remit.agents.builtin.coder.analysis.history import read_history
from remit.agents.builtin.coder.analysis.languages import BY_NAME
from remit.agents.builtin.coder.analysis.listing import FILES_AT_MOST, Listed, Lister, Listing
from remit.agents.builtin.coder.analysis.manifests import NAMES, read_manifests
from remit.agents.builtin.coder.analysis.opening import Reader, read_one
from remit.agents.builtin.coder.analysis.picture import draw
from remit.agents.builtin.coder.analysis.reading import warm
from remit.agents.builtin.coder.analysis.report import composition, title, write_report
from remit.agents.builtin.coder.analysis.survey import Survey
from remit.agents.builtin.coder.analysis.wording import many, printable

_GROUP = 2_000
_SAY_SECONDS = 1.0
_BAD_GIST = (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    workspace: Path
    below: str = ""
    """A folder or file in it, empty for all of it."""
    patterns: Sequence[str] = ()
    cache_folder: Path | None = None
    say: Callable[[str, float], None] = lambda message, fraction: None
    permitted: Callable[[Sequence[str]], Sequence[str]] = lambda paths: paths
    """Those of these files that may be read."""
    is_over: Callable[[], bool] = lambda: False
    """When to read no more: what there is by then is put together."""


@dataclass(slots=True)
class Analysis:
    asked: Asked
    survey: Survey = field(default_factory=Survey)
    read_now: int = 0
    from_cache: int = 0
    left: int = 0
    included: set[str] = field(default_factory=set)
    """Whose facts are those of this moment, in the cache or below."""
    unkept: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Facts that the cache does not have."""

    def run(self) -> tuple[Findings, Cache]:
        asked = self.asked
        asked.say("Looking which files there are.", 0.0)
        listing = self._permitted(Lister(asked.workspace, asked.below, asked.patterns, asked.is_over).listing())
        self.survey.skipped.update(listing.skipped)
        self.survey.skipped_folders |= listing.folders
        cache = Cache(asked.cache_folder, asked.workspace)
        todo = self._take_known(listing, cache)
        self._read(todo, cache)
        asked.say("Putting it together.", 0.95)
        findings = self._put_together(listing)
        return findings, cache

    def _permitted(self, listing: Listing) -> Listing:
        """Without what the policy lets nobody read."""
        may_read = set(self.asked.permitted([_as_text(one.path) for one in listing.files]))
        allowed = [one for one in listing.files if _as_text(one.path) in may_read]
        if len(allowed) < len(listing.files):
            listing.skipped["not to be read by the policy"] += len(listing.files) - len(allowed)
            listing.files = allowed
        return listing

    def _take_known(self, listing: Listing, cache: Cache) -> list[Listed]:
        todo = {one.path: one for one in listing.files}
        gone = []
        for path, kept_for, gist in cache.known(self.asked.below):
            one = todo.get(path)
            if one is None:
                gone.append(path)
            elif kept_for == (one.size, one.mtime_ns, one.changed_ns, one.inode, one.kind) and self._add(one, gist):
                self.included.add(path)
                self.from_cache += 1
                del todo[path]
        if not self.asked.patterns and not listing.is_cut:
            cache.forget(gone)
        return list(todo.values())

    def _add(self, one: Listed, gist: str) -> bool:
        try:
            self.survey.add(one.path, one.size, json.loads(gist))
        except _BAD_GIST:
            return False
        return True

    def _read(self, todo: list[Listed], cache: Cache) -> None:
        warm(
            {one.kind for one in todo if one.kind in BY_NAME}
            | ({"Python", "JavaScript"} if any(one.kind == "?" for one in todo) else set())
        )
        group: list[Kept] = []
        said = time.monotonic()
        done = 0
        for read in Crew(self.asked.workspace, todo, read_one).run(self.asked.is_over):
            done += 1
            self._take(read, group)
            if len(group) >= _GROUP:
                self._keep(group, cache)
                group = []
            if time.monotonic() - said > _SAY_SECONDS:
                said = time.monotonic()
                self.asked.say(f"Parsed {done:,} of {len(todo):,} files.", 0.9 * done / len(todo))
        self._keep(group, cache)
        self.left = len(todo) - done

    def _take(self, read: Read, group: list[Kept]) -> None:
        if read.trouble or not self._add(read.one, read.gist):
            self.survey.troubles.append((read.one.path, read.trouble or "the parser gave no facts"))
            return
        self.read_now += 1
        self.included.add(read.one.path)
        group.append(Kept(read.one, read.gist, read.symbols))

    def _keep(self, group: list[Kept], cache: Cache) -> None:
        if not cache.keep(group):
            self.unkept |= {kept.one.path: (kept.gist, kept.symbols) for kept in group}

    def _put_together(self, listing: Listing) -> Findings:
        asked = self.asked
        self.survey.members.sort()
        reader = Reader(asked.workspace)
        try:
            manifests = read_manifests(reader, [one.path for one in listing.files if one.path.rsplit("/", 1)[-1] in NAMES], asked.below)
        finally:
            reader.close()
        findings = found(
            asked.below, self.survey, manifests, lambda: read_history(asked.workspace, asked.below),
            lambda folder: _is_above(folder, asked.below) and (asked.workspace / folder / "__init__.py").is_file(),
        )  # fmt: skip
        findings.folder = asked.workspace.resolve().name or findings.folder
        findings.parsed_now, findings.from_cache, findings.left = self.read_now, self.from_cache, self.left
        if listing.is_cut:
            findings.notes.append(
                f"The list of files was cut: there are more than {FILES_AT_MOST:,}, or there was no time to list them all."
            )
        return findings


def _as_text(path: str) -> str:
    """A name that is no UTF-8 as the policy can be asked about it."""
    return path if path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")


def _is_above(folder: str, below: str) -> bool:
    return below == folder or below.startswith(folder + "/")


def write_picture(findings: Findings, path: Path) -> None:
    drawn = draw(folder_groups(findings), f"Imports of {title(findings)}", left_out_of_picture(findings))
    path.write_text(drawn, encoding="utf-8", errors="replace")


def write_markdown(findings: Findings, path: Path) -> None:
    path.write_text(write_report(findings), encoding="utf-8", errors="replace")


def write_whole(analysis: Analysis, findings: Findings, cache: Cache, path: Path) -> None:
    """Written as it comes out of the cache, file by file: a large project's facts need not fit into memory."""
    with path.open("w", encoding="utf-8") as out:
        out.write(f'{{"summary":{json.dumps(as_data(findings))},\n"files":[\n')
        comma = ""
        for name, gist, symbols in cache.facts():
            if name in analysis.included and name not in analysis.unkept:
                out.write(comma + _line(name, gist, symbols))
                comma = ",\n"
        for name, (gist, symbols) in analysis.unkept.items():
            out.write(comma + _line(name, gist, symbols))
            comma = ",\n"
        out.write("\n],\n" + f'"imports":{json.dumps(_all_edges(findings))}\n}}\n')


def _line(name: str, gist: str, symbols: str) -> str:
    return f'{{"path":{json.dumps(printable(name))},{gist[1:-1]},"symbols":{symbols}}}'


def _all_edges(findings: Findings) -> list[dict[str, Any]]:
    return [
        {"from": printable(source), "to": printable(target), "count": count, "isLazy": is_lazy}
        for graph, is_lazy in ((findings.edges.hard, False), (findings.edges.lazy, True))
        for source, targets in sorted(graph.items())
        for target, count in sorted(targets.items())
    ]


def answer(findings: Findings) -> dict[str, Any]:
    """A return in the shape of the contract."""
    data = as_data(findings)
    reply: dict[str, Any] = {"status": "completed", "summary": _summary(findings), "data": data}
    if findings.is_partial:
        reply["status"] = "partial"
        reply["errors"] = [
            {
                "type": "timeout",
                "code": "TIMEOUT",
                "message": f"There was no time to read {findings.left:,} of the files.",
                "recoverable": True,
                "recommendation": "Ask again: what was read is kept, and it goes on from there. Or allow more time, or name a part.",
            }
        ]
    return reply


def _summary(findings: Findings) -> str:
    tests = findings.tests
    parts = [composition(findings)]
    if findings.knots:
        parts.append(f"{many(len(findings.knots), 'group')} of modules import one another in a circle.")
    if findings.hot_spots:
        parts.append(f"Hottest spot: {printable(findings.hot_spots[0].member.path)[-80:]}.")
    if tests.tests and tests.untouched:
        parts.append(f"No test reaches {many(len(tests.untouched), 'file')}.")
    if findings.is_partial:
        parts.insert(0, f"Not complete: {findings.left:,} files are left; ask again to go on.")
    return " ".join(" ".join(parts).split())[:400]
