"""One analysis from end to end: list, parse, combine, write the two files. Blocking, and independent of a delegation's context."""

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from remit.builtin.coder.analysis.file_facts import ParserPool, load_lizard
from remit.builtin.coder.analysis.files import Listing, list_files, permitted_paths, printable
from remit.builtin.coder.analysis.grammars import GRAMMARS, load
from remit.builtin.coder.analysis.report import import_chart, summary, write_report
from remit.builtin.coder.analysis.survey import LISTED, Survey
from remit.builtin.worker.workspace import error_dict


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    workspace: Path
    out: Path
    """Where `analysis.md` and `analysis.json` are written."""
    below: str = ""
    """A folder or file of the workspace, empty for all of it."""
    patterns: Sequence[str] = ()
    progress: Callable[[str, float], None] = lambda message, fraction: None
    permitted: Callable[[Sequence[str]], Sequence[str]] = lambda paths: paths
    """Filters files that the policy lets the caller read."""
    is_over: Callable[[], bool] = lambda: False
    """When to stop reading and report the result so far."""

    def run(self) -> dict[str, Any]:
        """A return in the shape of the contract."""
        self.progress("Listing files.", 0.0)
        survey = Survey(self.workspace, self.below)
        listing = list_files(self.workspace, self.below, self.patterns, self.is_over)
        survey.skipped.update(listing.skipped)
        may_read = permitted_paths((one.path for one in listing.files), self.permitted)
        if withheld := len(listing.files) - len(may_read):
            survey.skipped["not to be read by the policy"] += withheld
            listing.files = [one for one in listing.files if one.path in may_read]
        with (self.out / "analysis.json").open("w", encoding="utf-8") as out:
            left = self._parse(listing, survey, out.write)
            self.progress("Building the report.", 0.95)
            data, graph = survey.finish(one.path for one in listing.files)
            data |= {"notReached": left, "skippedFolders": [printable(path) for path in sorted(listing.foreign)[:LISTED]]}
            edges = [
                {"from": printable(start), "to": printable(end), "count": count, "isLazy": is_lazy}
                for found, is_lazy in ((graph.eager, False), (graph.lazy, True))
                for start, targets in sorted(found.items())
                for end, count in sorted(targets.items())
            ]
            out.write(f'"imports":{json.dumps(edges)},\n"summary":{json.dumps(data)}\n}}\n')
        title = printable(os.path.basename(self.below) or self.workspace.resolve().name)
        report = write_report(data, survey, import_chart(survey, graph), title)
        (self.out / "analysis.md").write_text(report, encoding="utf-8", errors="replace")
        reply: dict[str, Any] = {"status": "completed", "summary": summary(data), "data": data}
        if left or listing.is_cut:
            message = f"There was no time to read {left:,} of the files." if left else "There was no time to list all files."
            error = error_dict("timeout", "TIMEOUT", message, "Allow more time, or name a part with path or patterns.")
            reply |= {"status": "partial", "errors": [error]}
        return reply

    def _parse(self, listing: Listing, survey: Survey, write: Callable[[str], object]) -> int:
        """Writes facts as they come: those of a large project need not fit into memory. Returns how many files were not read."""
        for language in {one.kind for one in listing.files} & GRAMMARS.keys():
            load(language)  # before the fork, once for all workers
        if any(one.kind not in GRAMMARS for one in listing.files):
            load_lizard()
        write('{"files":[')
        done, comma, last = 0, "\n", time.monotonic()
        for file, facts, text in ParserPool(self.workspace, listing.files).run(self.is_over):
            done += 1
            if survey.add(file, facts):
                write(f'{comma}{{"path":{json.dumps(printable(file.path))},{text[1:]}')
                comma = ",\n"
            if time.monotonic() - last > 1:
                last = time.monotonic()
                self.progress(f"Parsed {done:,} of {len(listing.files):,} files.", 0.9 * done / len(listing.files))
        write("\n],\n")
        return len(listing.files) - done
