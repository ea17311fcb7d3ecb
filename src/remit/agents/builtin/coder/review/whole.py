"""What is seen only from afar: whether it applies, size, mixed concerns, missing tests, files of odd kinds, modes, dependencies."""

import re
from collections.abc import Iterator

from remit.agents.builtin.coder.review.applying import State
from remit.agents.builtin.coder.review.findings import Finding, Severity
from remit.agents.builtin.coder.review.languages import is_dependencies, is_document, is_generated, is_lock, is_script, is_test
from remit.agents.builtin.coder.review.matter import ChangedFile, Matter
from remit.agents.builtin.coder.review.search import uses
from remit.agents.builtin.coder.review.symbols import touched

LINES_LIMIT = 400
FILE_LIMIT_BYTES = 500_000
SEARCH_SECONDS = 8.0
_PACKAGE = re.compile(
    r"^\s{0,20}(?:require\s)?[\"']?(@?[A-Za-z][\w./@-]{0,100})(?:\[[\w, -]{0,80}\])?[\"']?"
    r"\s?(?::\s?\"[\^~>=<v]{0,2}\d|[=<>~!]=|@|\sv\d|\s?=\s?[\"{])"
)
"""A line that names a package and a version."""


def applies(matter: Matter) -> Iterator[Finding]:
    for file in matter.files:
        if file.applied.is_withheld:
            yield Finding(
                severity=Severity.MEDIUM,
                category="patch",
                rule="not-read",
                file=file.path,
                message=f"Whether it applies is not known: {file.applied.note}.",
                suggestion="Have somebody look at it who may.",
            )
        if file.applied.state is not State.FAILS:
            continue
        for fault in file.applied.faults:
            yield Finding(
                severity=Severity.CRITICAL if fault.leads_out else Severity.HIGH,
                category="patch",
                rule="path" if fault.leads_out else "does-not-apply",
                file=file.path,
                line=fault.line,
                message=fault.message[:1].upper() + fault.message[1:],
                suggestion="Do not apply it: no honest change has such a path."
                if fault.leads_out
                else "Make the diff anew against the files as they stand.",
            )


def files(matter: Matter) -> Iterator[Finding]:
    for file in matter.files:
        yield from _odd_file(file)
    changed = [file for file in matter.files if is_dependencies(file.path)]
    locks = [file.path for file in matter.files if is_lock(file.path)]
    for file in changed:
        packages = list(dict.fromkeys(found[1] for line in file.added.values() if (found := _PACKAGE.match(line[:300]))))
        if packages:
            yield Finding(
                severity=Severity.INFO,
                category="dependencies",
                rule="dependencies",
                file=file.path,
                message=f"What the project depends on changes: {', '.join(packages[:8])}{', …' if len(packages) > 8 else ''}.",
                suggestion="See that each is wanted, known and pinned.",
            )
    if locks and not changed:
        yield Finding(
            severity=Severity.LOW,
            category="dependencies",
            rule="lock-alone",
            file=locks[0],
            message="The lock file changes, but no list of dependencies does.",
            suggestion="Say why: an update, or an accident?",
        )


def _odd_file(file: ChangedFile) -> Iterator[Finding]:
    first, last = file.applied.changes[0], file.applied.changes[-1]
    if last.is_link and last.new_path is not None:
        target = next(iter(file.added.values()), "")
        leads_out = target.startswith("/") or target.startswith("..")
        yield Finding(
            severity=Severity.HIGH if leads_out else Severity.LOW,
            category="files",
            rule="link",
            file=file.path,
            message=f"A symbolic link{' that may lead out of the repository' if leads_out else ''} is added or changed.",
            suggestion="Put a file there, or see where the link leads.",
        )
    elif last.is_submodule:
        yield Finding(
            severity=Severity.LOW,
            category="files",
            rule="submodule",
            file=file.path,
            message="A submodule moves to another commit.",
            suggestion="Review what it brings: it is not in this diff.",
        )
    elif last.is_binary:
        yield Finding(
            severity=Severity.LOW,
            category="files",
            rule="binary",
            file=file.path,
            message="A binary file cannot be reviewed by reading.",
            suggestion="Say where it comes from and how it was made.",
        )
    if first.old_mode and last.new_mode.endswith("755") and first.old_mode.endswith("644"):
        yield Finding(
            severity=Severity.LOW,
            category="files",
            rule="mode",
            file=file.path,
            message="The file becomes executable.",
            suggestion="See that this is meant.",
        )
    elif file.is_new and last.new_mode.endswith("755") and file.after is not None and not file.after.startswith("#!"):
        yield Finding(
            severity=Severity.LOW,
            category="files",
            rule="mode",
            file=file.path,
            message="A new file is executable, but does not begin with #!.",
            suggestion="Take the right to execute away, or add the first line.",
        )
    if file.is_new and file.after is not None and len(file.after) > FILE_LIMIT_BYTES and not is_lock(file.path):
        yield Finding(
            severity=Severity.LOW,
            category="files",
            rule="large-file",
            file=file.path,
            message=f"A large file is added ({len(file.after) // 1000:,} KB).",
            suggestion="Keep data outside of the repository, or use Git LFS.",
        )


def size(matter: Matter) -> Iterator[Finding]:
    counted = [file for file in matter.files if not is_generated(file.path) and not is_document(file.path)]
    lines = sum(len(file.added) + len(file.removed) for file in counted)
    limit = matter.guidelines.changed_lines or LINES_LIMIT
    if lines > limit:
        folders = sorted({file.path.partition("/")[0] for file in counted if "/" in file.path})
        where = f" in {len(counted)} files" + (f", {len(folders)} top folders" if len(folders) > 2 else "")
        severity = Severity.LOW if lines <= 2 * limit and not matter.guidelines.changed_lines else Severity.MEDIUM
        yield Finding(
            severity=severity,
            category="size",
            rule="size",
            message=f"{lines:,} lines change{where}: beyond about {limit:,} a reviewer misses most faults.",
            suggestion="Split it: one purpose for each change, renames and moves apart from changes of behaviour.",
        )


def tests(matter: Matter) -> Iterator[Finding]:
    """Code changed, no test did, and no test that is there speaks of what changed or of its module."""
    if any(is_test(file.path) and file.added for file in matter.files):
        return
    changed = {file: sorted(touched(file))[:30] for file in matter.files if _wants_tests(file)}
    if not changed:
        return
    names = sorted({name for found in changed.values() for name in found if len(name) > 2 and not name.startswith("__")})[:200]
    hits = uses(matter.workspace, [*names, *sorted({_module(file) for file in changed})], min(SEARCH_SECONDS, matter.seconds_left()))
    if hits is None:
        matter.unchecked.append("whether tests speak of what changed: time was up")
        return
    told = "\n".join(f"{hit.path}: {hit.text}" for hit in hits if is_test(hit.path))
    untested = {file: found for file, found in changed.items() if not _is_told_of(file, found, told)}
    if untested:
        yield _untested(matter, untested)


def _module(file: ChangedFile) -> str:
    *folders, name = file.path.split("/")
    stem = name.partition(".")[0]
    return folders[-1] if stem in ("__init__", "index", "mod", "lib") and folders else stem


def _is_told_of(file: ChangedFile, found: list[str], told: str) -> bool:
    """A file that is new is known to a test by its name only: what it defines may be called like anything else."""
    module = re.escape(_module(file))
    if file.is_new and file.language != "go":  # whose tests are in the package and name no file
        return re.search(rf"\b{module}\b", told) is not None
    named = "|".join(re.escape(name) for name in found if len(name) > 2 and not name.startswith("__"))
    return (
        re.search(rf"\b(?:import|from|require|use|include)\b[^\n]{{0,300}}\b{module}\b" + (rf"|\b(?:{named})\b" if named else ""), told)
        is not None
    )


def _untested(matter: Matter, untested: dict[ChangedFile, list[str]]) -> Finding:
    lines = sum(len(file.added) for file in untested)
    severity = Severity.HIGH if matter.guidelines.tests_required else Severity.MEDIUM if lines >= 20 else Severity.LOW
    names = [name for found in untested.values() for name in found if not name.startswith("__")]
    what = f" ({', '.join(names[:4])}{', …' if len(names) > 4 else ''})" if names else ""
    files = [file.path for file in untested]
    where = "" if len(files) == 1 else f" in {len(files)} files ({', '.join(files[:3])}{', …' if len(files) > 3 else ''})"
    return Finding(
        severity=severity,
        category="tests",
        rule="missing-tests",
        file=files[0] if len(files) == 1 else "",
        message=f"{lines} lines of code change{where}, but no test changes with them, and none mentions what changed{what}.",
        suggestion="Add a test that fails without this change.",
    )


def _wants_tests(file: ChangedFile) -> bool:
    if not file.is_code or is_test(file.path) or is_script(file.path) or file.language == "shell":
        return False
    code = [
        line for line in file.added.values() if line.strip() and not line.strip().startswith(("#", "//", "*", "/*", "import ", "from "))
    ]
    return len(code) >= 3
