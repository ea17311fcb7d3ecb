"""Names that were removed, or that demand other parameters, while others in the workspace still use them.

Calls within the changed file itself are `calls`' matter.
"""

import re
from collections.abc import Iterator

from remit.agents.builtin.coder.review.calls import calls_left
from remit.agents.builtin.coder.review.findings import Finding, Severity
from remit.agents.builtin.coder.review.languages import is_test
from remit.agents.builtin.coder.review.matter import ChangedFile, Matter
from remit.agents.builtin.coder.review.search import Hit, uses
from remit.agents.builtin.coder.review.symbols import Symbol, names_by_form, python_symbols

SEARCH_SECONDS = 10.0
NAMES_LIMIT = 60


def check(matter: Matter) -> Iterator[Finding]:
    for file in matter.whole:
        if file.language == "python" and file.before is not None:
            yield from calls_left(file)
    yield from _left_elsewhere(matter)


def _left_elsewhere(matter: Matter) -> Iterator[Finding]:
    gone = {(file.path, name): (file, "") for file in matter.files for name in _removed(file)}
    for file in matter.whole:
        gone |= {(file.path, name): (file, how) for name, how in _demanding(file)}
    still_there = {name for file in matter.whole for name in _defined(file)}
    asked = [(name, file, how) for (_, name), (file, how) in gone.items() if how or name not in still_there][:NAMES_LIMIT]
    if not asked:
        return
    if not matter.in_workspace:
        matter.unchecked.append(f"callers of {len(asked)} removed or changed names: the change is not of the workspace as it stands")
        return
    hits = uses(matter.workspace, sorted({name for name, _, _ in asked}), min(SEARCH_SECONDS, matter.seconds_left()))
    if hits is None:
        matter.unchecked.append("callers of removed names: time was up")
        return
    standing = _standing(matter, hits)
    for name, file, how in asked:
        callers = [hit for hit in standing if _uses(hit, name, file) and hit.path != file.path]
        if callers:
            yield _finding(file, name, how, callers)


def _removed(file: ChangedFile) -> set[str]:
    if file.language == "python":
        before = {symbol.name for symbol in python_symbols(file.before or "") if symbol.is_public and symbol.is_top}
        if file.after is None and not file.is_gone:
            return set()
        return before - _defined(file)
    if not file.is_code or is_test(file.path) or (file.after is None and not file.is_gone):
        return set()
    return {name for name in names_by_form(file.language, file.removed, public_only=True) - _defined(file) if len(name) > 3}


def _defined(file: ChangedFile) -> set[str]:
    text = file.after or ""
    if file.language == "python":
        assigned = set(re.findall(r"^([A-Za-z_]\w{0,80})\s?(?::[^=\n]{0,200})?=", text, re.MULTILINE))
        imported = {
            name
            for line in re.findall(r"^(?:from|import)\s.{1,400}|^    ([A-Za-z_]\w{0,80}),$", text, re.MULTILINE)
            for name in re.findall(r"\w+", line)
        }
        imported |= {name for line in re.findall(r"^(?:from|import)\s(.{1,400})", text, re.MULTILINE) for name in re.findall(r"\w+", line)}
        return {symbol.name for symbol in python_symbols(text)} | assigned | imported
    return names_by_form(file.language, text.split("\n"))


def _demanding(file: ChangedFile) -> Iterator[tuple[str, str]]:
    """Functions that now need what callers do not give, or refuse what they gave."""
    if file.language != "python" or file.before is None or file.after is None or is_test(file.path):
        return
    before = {symbol.name: symbol for symbol in python_symbols(file.before) if _may_be_called(symbol)}
    for now in python_symbols(file.after):
        was = before.get(now.name)
        if was is None or not _may_be_called(now):
            continue
        more = [name for name in now.required if name not in was.required]
        fewer = [] if now.takes_any else [name for name in was.accepted if name not in now.accepted]
        if more:
            yield now.name, f"now needs {', '.join(more)}"
        elif fewer:
            yield now.name, f"no longer takes {', '.join(fewer)}"


def _may_be_called(symbol: Symbol) -> bool:
    return symbol.kind == "function" and symbol.is_public and symbol.is_top


def _standing(matter: Matter, hits: list[Hit]) -> list[Hit]:
    """Files that the diff changes are looked at as it leaves them."""
    changed = {file.path: file for file in matter.files}
    lines = {path: (file.after or "").split("\n") for path, file in changed.items()}
    kept = [hit for hit in hits if hit.path not in changed]
    for path, text in lines.items():
        kept += [Hit(path, number, line[:400]) for number, line in enumerate(text, 1)]
    return kept


def _uses(hit: Hit, name: str, file: ChangedFile) -> bool:
    """A word alone proves little: in Python it must be imported, or be taken from its module."""
    if not re.search(rf"\b{re.escape(name)}\b", hit.text) or hit.text.lstrip().startswith(("#", "//", "*")):
        return False
    if file.language == "python":
        *folders, last = file.path.removesuffix(".py").split("/")
        module = (folders[-1] if folders else "") if last == "__init__" else last
        return bool(module) and bool(
            re.search(
                rf"\bfrom\s[\w.]{{0,200}}\b{re.escape(module)}\simport\b.{{0,300}}\b{re.escape(name)}\b|\b{re.escape(module)}\.{re.escape(name)}\b",
                hit.text,
            )
        )
    return hit.path.rpartition(".")[2] == file.path.rpartition(".")[2]


def _finding(file: ChangedFile, name: str, how: str, callers: list[Hit]) -> Finding:
    places = ", ".join(f"{hit.path}:{hit.line}" for hit in callers[:3])
    more = f" and {len(callers) - 3} more" if len(callers) > 3 else ""
    what = f"{name} {how}" if how else f"{name} is gone"
    is_sure = file.language == "python"
    return Finding(
        severity=(Severity.MEDIUM if how else Severity.HIGH) if is_sure else Severity.LOW,
        category="interface",
        rule="callers-left",
        file=file.path,
        message=f"{what}, but it is still used at {places}{more}.",
        suggestion="Change the callers too, or keep the old name for a while.",
    )
