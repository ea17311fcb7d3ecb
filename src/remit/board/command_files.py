"""Command files: `.remit/commands/NAME.md` and those of Claude and OpenCode, found, read, and filled with their arguments.

A file is a prompt with a head; `project_commands` has an agent carry it out. Light to import: `remit --help` uses it.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.core.errors import Misused
from remit.core.text import shorten

if TYPE_CHECKING:
    from remit.agents.agent_files import Page
    from remit.system.trust import ProjectTrust


OWN = ".remit/commands"
FOLDERS = (OWN, ".claude/commands", ".opencode/command", ".opencode/commands")
"""Where command files are looked for. When two have one name, the first in this order is taken."""
MAX_FILES = 1000
LONGEST_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_KNOWN = frozenset({"name", "description", "agent", "timeout", "argument-hint", "model", "remit"})
_MARK = re.compile(
    r"\\(?P<escaped>\$(?:ARGUMENTS\b|[1-9](?!\d)))"
    r"|(?<![\w./@])@(?P<named>\$ARGUMENTS\b|\$[1-9](?!\d)|(?:\./)?[\w.-]*\w(?:/[\w.-]*\w)*)"
    r"|\$(?P<which>ARGUMENTS\b|[1-9](?!\d))"
)
_SHELL = re.compile(r"(?:^|(?<=\s))!`[^`\n]*`", re.MULTILINE)
MAX_INCLUDED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFile:
    name: str
    path: str
    """Relative to the project's root."""
    body: str
    description: str = ""
    agent: str | None = None
    """The agent that carries it out; None: the one that carries out agent files."""
    timeout: float | None = None
    """Seconds; None: the setting for its name."""
    model: str = ""
    """Which language model it wants; of use only where one carries it out."""
    hint: str = ""
    """What its arguments are, for the help."""
    warnings: tuple[str, ...] = ()
    """What it says that is not done here."""

    @property
    def is_ours(self) -> bool:
        """False: it was written for another tool, whose agents need not be here."""
        return self.path.startswith(f"{OWN}/")

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "path": self.path,
            "description": self.description,
            "agent": self.agent,
            "model": self.model or None,
            "timeout": self.timeout,
            "argument_hint": self.hint,
            "warnings": list(self.warnings),
        }


def places(root: Path) -> dict[str, Path]:
    """The names that files of this project would give commands, whether they can be read or not, and the files. Reads no file."""
    found: dict[str, Path] = {}
    for name, path in _places(root, []):
        if is_name(name):
            found.setdefault(name, path)
    return found


def names(root: Path) -> list[str]:
    return list(places(root))


def find(root: Path, name: str, trust: "ProjectTrust | None" = None) -> CommandFile | None:
    """The command of that name; None when no file has it. Raises `Misused` that says what is wrong with its file, also that it is not
    approved. `trust`: what is approved, where that was read already."""
    path = places(root).get(name)
    return None if path is None else read(path, root, trust)


def every(root: Path, taken: Collection[str] = (), trust: "ProjectTrust | None" = None) -> tuple[list[CommandFile], list[str]]:
    """All that can be run, and what is wrong with the others, a line each. `taken`: names of commands that come with remit."""
    from remit.system.trust import load_trust

    trust = trust or load_trust(root)
    problems: list[str] = []
    found: dict[str, CommandFile] = {}
    for name, path in _places(root, problems):
        where = path.relative_to(root).as_posix()
        if not is_name(name):
            problems.append(f"{where}: {name!r} is not a name for a command: use letters, digits, - and _.")
        elif name in taken:
            problems.append(f"{where}: `remit {name}` comes with remit and stays what it is. Rename the file.")
        elif name in found:
            problems.append(f"{where}: there is a command {name!r} in {found[name].path}, and that one is taken.")
        else:
            try:
                found[name] = read(path, root, trust)
            except Misused as error:
                problems.append(error.message)
    return list(found.values()), problems


def is_name(name: str) -> bool:
    """A README is no command: it is for people."""
    return name.casefold() != "readme" and len(name) <= LONGEST_NAME and _NAME.fullmatch(name) is not None


def command_of(page: "Page", root: Path) -> CommandFile:
    """What a page declares. Raises `Misused`, with its file and line."""
    where = page.path.relative_to(root).as_posix()
    own = page.head.get("remit") or {}
    if not isinstance(own, Mapping):
        raise Misused(f"{where}: line {page.lines.get('remit', 2)}: remit must hold keys and values.")
    head = {**page.head, **own}
    if not page.body:
        raise Misused(f"{where}: it has no text below its head.")
    words = {key: _text(where, page, head, key) for key in ("description", "agent", "model", "argument-hint")}
    return CommandFile(
        name=page.path.stem,
        path=where,
        body=page.body,
        description=words["description"] or _first_line(page.body),
        agent=words["agent"] or None,
        timeout=_seconds(where, page, head.get("timeout")),
        model=words["model"],
        hint=words["argument-hint"],
        warnings=tuple(_doubts(where, page, head)),
    )


def read(path: Path, root: Path, trust: "ProjectTrust | None" = None) -> CommandFile:
    """The command that a file declares. Raises `Misused`; `NotApproved` where no person approved it."""
    # Only here: reading YAML costs a project that has no such file nothing.
    from remit.agents.agent_files import read_with_or_without_head
    from remit.agents.project_files import NotApproved
    from remit.system.trust import load_trust

    where = path.relative_to(root).as_posix()
    try:
        page = read_with_or_without_head(path, root, trust or load_trust(root))
    except NotApproved as error:
        raise NotApproved(f"{where} is not approved.", advice=error.advice) from None
    except Misused as error:
        raise Misused(f"{where}: {error.message}", advice="Fix that file.") from None
    return command_of(page, root)


def _places(root: Path, problems: list[str]) -> Iterator[tuple[str, Path]]:
    """The Markdown files in and below the folders, in order of their names; our own folder has none below it."""
    for folder in FOLDERS:
        place = root / folder
        try:
            if not place.is_dir():
                continue
            if not place.resolve().is_relative_to(root.resolve()):
                problems.append(f"{folder}: it is a link that leads out of the project.")
                continue
            found = sorted(place.glob("*.md") if folder == OWN else place.rglob("*.md"))
        except (OSError, RuntimeError) as error:  # RuntimeError: links in a cycle, before Python 3.13
            problems.append(f"{folder}: it cannot be read: {getattr(error, 'strerror', None) or error}.")
            continue
        if len(found) > MAX_FILES:
            problems.append(f"{folder}: it has more than {MAX_FILES} files; the first {MAX_FILES} are read.")
        yield from (
            (path.stem, path) for path in found[:MAX_FILES] if not path.name.startswith(("_", ".")) and path.stem.upper() != "README"
        )


def _text(where: str, page: "Page", head: Mapping[str, Any], key: str) -> str:
    value = head.get(key)
    if value is None:
        return ""
    if key == "argument-hint" and isinstance(value, list):  # `argument-hint: [path]` is a list to YAML
        return " ".join(f"[{one}]" for one in value)
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise Misused(f"{where}: line {page.lines.get(key, 2)}: {key} must be text, not a {type(value).__name__}.")
    return " ".join(str(value).split())


def _seconds(where: str, page: "Page", value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise Misused(f"{where}: line {page.lines.get('timeout', 2)}: timeout must be a positive number of seconds, not {value!r}.")
    return float(value)


def _doubts(where: str, page: "Page", head: Mapping[str, Any]) -> Iterator[str]:
    unknown = sorted(str(key) for key in set(head) - _KNOWN)
    if unknown and where.startswith(f"{OWN}/"):
        yield f"{where}: nothing is done with {', '.join(unknown)[:200]}."


def _first_line(body: str) -> str:
    """Describes a file that has no description."""
    line = next((line.strip(" #") for line in body.splitlines() if line.strip(" #")), "")
    return shorten(line, 100)


# ---- arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledText:
    text: str
    files: tuple[str, ...] = ()
    """Paths that the file names by `@path`, as written there: included where they can be read."""
    warnings: tuple[str, ...] = ()


def fill_arguments(body: str, arguments: Sequence[str]) -> FilledText:
    """`$ARGUMENTS` is all of them, `$1` to `$9` one each, nothing where there are fewer; `\\$1` stays `$1`.

    Arguments that the text does not ask for are put at its end: what the user says always reaches the agent.
    """
    asked: list[str] = []
    files: list[str] = []

    def put(match: "re.Match[str]") -> str:
        if match["escaped"]:
            return match["escaped"]
        mark = match["which"] or (match["named"] or "")[1:]
        value = ""
        if match["which"] or match["named"].startswith("$"):
            asked.append(mark)
            value = " ".join(arguments if mark == "ARGUMENTS" else arguments[int(mark) - 1 : int(mark)])
        if match["which"]:
            return value
        named = value if match["named"].startswith("$") else match["named"]
        if named:
            files.append(named)
        return f"@{named}"

    text = _MARK.sub(put, body)
    rest = [one for number, one in enumerate(arguments, start=1) if str(number) not in asked and "ARGUMENTS" not in asked]
    if rest:
        text = f"{text.rstrip()}\n\n{'More arguments' if asked else 'Arguments'}: {' '.join(rest)}"
    return FilledText(text=text, files=tuple(dict.fromkeys(files)), warnings=tuple(_warnings(body, arguments, asked)))


def _warnings(body: str, arguments: Sequence[str], asked: Sequence[str]) -> list[str]:
    said: list[str] = []
    shell = _SHELL.findall(body)
    if shell:
        more = f" (and {len(shell) - 1} more)" if len(shell) > 1 else ""
        said.append(f"No command of a command file is run by a shell: {shell[0][:80]}{more} stays text, which the agent may act upon.")
    missing = sorted({mark for mark in asked if mark != "ARGUMENTS" and int(mark) > len(arguments)})
    if missing:
        said.append(f"Nothing was given for {', '.join(f'${mark}' for mark in missing)}.")
    elif "ARGUMENTS" in asked and not arguments:
        said.append("No arguments were given: $ARGUMENTS is empty.")
    return said
