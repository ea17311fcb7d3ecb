"""Command files: finds, parses and fills `.remit/commands/NAME.md` and those of Claude and OpenCode.

A file is a prompt with front matter; `project_commands` has an agent execute it. Light to import: `remit --help` uses it."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.core.errors import Misused
from remit.core.text import shorten
from remit.system.beneath import path_inside

if TYPE_CHECKING:
    from remit.agents.agent_files import Page
    from remit.system.trust import ProjectTrust


OWN = ".remit/commands"
FOLDERS = (OWN, ".claude/commands", ".opencode/command", ".opencode/commands")
"""Folders of command files. For duplicate names the first in this order is used."""
LONGEST_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_KNOWN = frozenset({"name", "description", "agent", "timeout", "argument-hint", "arguments", "model", "remit"})
_MARK = re.compile(r"(?P<escape>\\)?\$(?P<which>ARGUMENTS\b|[1-9](?!\d))")
_SHELL = re.compile(r"(?:^|(?<=\s))!`[^`\n]*`", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFile:
    name: str
    path: str
    """Relative to the project's root."""
    body: str
    description: str = ""
    agent: str | None = None
    """The agent that executes it; None: the default for agent files."""
    timeout: float | None = None
    """Seconds; None: the setting for its name."""
    model: str = ""
    """Requested language model; used only if a model executes it."""
    hint: str = ""
    """Description of its arguments, for the help."""
    rules: "tuple[ArgumentRule, ...] | None" = None
    """Rules of its arguments, in order; None: any arguments."""
    warnings: tuple[str, ...] = ()
    """Entries that have no effect here."""

    @property
    def is_ours(self) -> bool:
        """False: written for another tool, whose agents may not exist here."""
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
    """Command names and files of this project, readable or not. Reads no file."""
    found: dict[str, Path] = {}
    for name, path in _places(root, []):
        if is_name(name):
            found.setdefault(name, path)
    return found


def names(root: Path) -> list[str]:
    return list(places(root))


def find(root: Path, name: str, trust: "ProjectTrust | None" = None) -> CommandFile | None:
    """The command of that name; None if no file has it. Raises `Misused` with the fault of its file, also if it is not approved. `trust`:
    the approvals, if already read."""
    path = places(root).get(name)
    return None if path is None else read(path, root, trust)


def every(root: Path, taken: Collection[str] = (), trust: "ProjectTrust | None" = None) -> tuple[list[CommandFile], list[str]]:
    """All runnable commands, and the faults of the others, one line each. `taken`: names of built-in commands."""
    from remit.system.trust import load_trust

    trust = trust or load_trust(root)
    problems: list[str] = []
    found: dict[str, CommandFile] = {}
    for name, path in _places(root, problems):
        where = path.relative_to(root).as_posix()
        if not is_name(name):
            problems.append(f"{where}: {name!r} is not a name for a command: use letters, digits, - and _.")
        elif name in taken:
            problems.append(f"{where}: `remit {name}` is a built-in command and cannot be replaced. Rename the file.")
        elif name in found:
            problems.append(f"{where}: ignored, because {found[name].path} also defines the command {name!r}.")
        else:
            try:
                found[name] = read(path, root, trust)
            except Misused as error:
                problems.append(error.message)
    return list(found.values()), problems


def is_name(name: str) -> bool:
    """A README is not a command."""
    return name.casefold() != "readme" and len(name) <= LONGEST_NAME and _NAME.fullmatch(name) is not None


def command_of(page: "Page", root: Path) -> CommandFile:
    """The command of a page. Raises `Misused` with its file and line."""
    where = page.path.relative_to(root).as_posix()
    own = page.head.get("remit") or {}
    if not isinstance(own, Mapping):
        raise Misused(f"{where}: line {page.lines.get('remit', 2)}: remit must contain keys and values.")
    head = {**page.head, **own}
    if not page.body:
        raise Misused(f"{where}: it has no text below its front matter.")
    words = {key: _text(where, page, head, key) for key in ("description", "agent", "model", "argument-hint")}
    unknown = sorted(map(str, set(head) - _KNOWN)) if where.startswith(f"{OWN}/") else []
    first_line = next((line.strip(" #") for line in page.body.splitlines() if line.strip(" #")), "")
    rules = _rules(f"{where}: line {page.lines.get('arguments', 2)}", head["arguments"]) if "arguments" in head else None
    return CommandFile(
        name=page.path.stem,
        path=where,
        body=page.body,
        description=words["description"] or shorten(first_line, 100),
        agent=words["agent"] or None,
        timeout=_seconds(where, page, head.get("timeout")),
        model=words["model"],
        hint=words["argument-hint"] or " ".join(rule.usage for rule in rules or ()),
        rules=rules,
        warnings=(f"{where}: ignored keys: {', '.join(unknown)[:200]}.",) if unknown else (),
    )


def read(path: Path, root: Path, trust: "ProjectTrust | None" = None) -> CommandFile:
    """The command of a file. Raises `Misused`; `NotApproved` if no person approved it."""
    # Imported here: projects without such files need not load YAML.
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
    """The Markdown files in and below the folders, by name; remit's own folder is not searched recursively."""
    for folder in FOLDERS:
        place = root / folder
        try:
            if not place.is_dir():
                continue
            if path_inside(root, place) is None:
                problems.append(f"{folder}: it is a link that leads out of the project.")
                continue
            found = sorted(place.glob("*.md") if folder == OWN else place.rglob("*.md"))
        except (OSError, RuntimeError) as error:  # RuntimeError: circular links, before Python 3.13
            problems.append(f"{folder}: it cannot be read: {getattr(error, 'strerror', None) or error}.")
            continue
        yield from ((path.stem, path) for path in found if not path.name.startswith(("_", ".")) and path.stem.upper() != "README")


def _text(where: str, page: "Page", head: Mapping[str, Any], key: str) -> str:
    value = head.get(key)
    if value is None:
        return ""
    if key == "argument-hint" and isinstance(value, list):  # YAML parses `argument-hint: [path]` as a list
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


# ---- arguments


_KINDS = {"text": str, "integer": int, "number": float}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentRule:
    name: str
    kind: str = "text"
    choices: tuple[str, ...] = ()
    is_required: bool = True
    is_rest: bool = False
    """It takes all remaining arguments."""

    @property
    def usage(self) -> str:
        word = f"{self.name.upper()}{'...' if self.is_rest else ''}"
        return word if self.is_required else f"[{word}]"

    def check(self, given: str) -> None:
        if self.choices and given not in self.choices:
            raise Misused(f"Argument {self.name} must be one of {', '.join(self.choices)}. Got: {shorten(given, 60)}")
        try:
            _KINDS[self.kind](given)
        except ValueError:
            article = "an" if self.kind == "integer" else "a"
            raise Misused(f"Argument {self.name} must be {article} {self.kind}. Got: {shorten(given, 60)}") from None


def _rules(where: str, given: object) -> tuple[ArgumentRule, ...]:
    """`arguments` of the front matter: names with `text`, `integer`, `number` or a list of words; `?` suffix:
    optional, `...`: one or more."""
    if not isinstance(given, Mapping):
        raise Misused(f"{where}: arguments must be names with their kinds.", advice="E.g. arguments: {number: integer, focus: text?}.")
    rules: list[ArgumentRule] = []
    for name, value in given.items():
        choices = tuple(map(str, value)) if isinstance(value, list) else ()
        words = "text" if choices else str(value)
        kind = words.removesuffix("?").removesuffix("...")
        if kind not in _KINDS or not is_name(str(name)):
            raise Misused(f"{where}: argument {name!s:.40} has the kind {words!r:.40}.", advice=f"Use {', '.join(_KINDS)}, with ? or ....")
        rule = ArgumentRule(
            name=str(name), kind=kind, choices=choices, is_required=not words.endswith("?"), is_rest=words.removesuffix("?").endswith("...")
        )
        if rules and (rules[-1].is_rest or (rule.is_required and not rules[-1].is_required)):
            raise Misused(f"{where}: argument {name} cannot follow {rules[-1].name}.", advice="Optional ones, then one with ..., go last.")
        rules.append(rule)
    return tuple(rules)


def check_arguments(command: CommandFile, arguments: Sequence[str]) -> None:
    """Raise `Misused` if they break the rules of the file."""
    if command.rules is None:
        return
    usage = f"Usage: remit {' '.join((command.name, *(rule.usage for rule in command.rules)))}"
    for place, rule in enumerate(command.rules):
        given = arguments[place:] if rule.is_rest else arguments[place : place + 1]
        if not given and rule.is_required:
            raise Misused(f"Argument {rule.name} required. {usage}")
        for one in given:
            rule.check(one)
    most = len(command.rules)
    if len(arguments) > most and not (command.rules and command.rules[-1].is_rest):
        raise Misused(f"Too many arguments: {shorten(arguments[most], 60)}. {usage}")


def fill_arguments(body: str, arguments: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The text with its arguments, and warnings. `$ARGUMENTS` is all of them, `$1` to `$9` one each; `\\$1` stays `$1`.

    Arguments that the text does not use are appended, so that the user's input always reaches the agent."""
    asked: set[str] = set()

    def put(match: "re.Match[str]") -> str:
        mark = match["which"]
        if match["escape"]:
            return f"${mark}"
        asked.add(mark)
        return " ".join(arguments if mark == "ARGUMENTS" else arguments[int(mark) - 1 : int(mark)])

    text = _MARK.sub(put, body)
    rest = [one for number, one in enumerate(arguments, start=1) if str(number) not in asked and "ARGUMENTS" not in asked]
    if rest:
        text = f"{text.rstrip()}\n\n{'More arguments' if asked else 'Arguments'}: {' '.join(rest)}"
    return text, tuple(_warnings(body, arguments, asked))


def _warnings(body: str, arguments: Sequence[str], asked: Collection[str]) -> Iterator[str]:
    if shell := _SHELL.findall(body):
        more = f" (and {len(shell) - 1} more)" if len(shell) > 1 else ""
        yield f"Shell commands in a command file are not executed: {shell[0][:80]}{more} is passed to the agent as text."
    if missing := sorted(mark for mark in asked if not arguments or (mark != "ARGUMENTS" and int(mark) > len(arguments))):
        yield f"No value was given for {', '.join(f'${mark}' for mark in missing)}."
