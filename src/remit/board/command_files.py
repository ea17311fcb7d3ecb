"""Command files: finds, parses and fills `.remit/commands/NAME.md`.

A file is a prompt with front matter; `project_commands` has an agent execute it. Light to import: `remit --help` uses it."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.core.errors import Misused
from remit.core.text import shorten

if TYPE_CHECKING:
    from remit.agents.agent_files import Page
    from remit.system.trust import ProjectTrust


OWN = ".remit/commands"
"""Folder of command files."""
LONGEST_NAME = 64
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_KNOWN = frozenset({"name", "description", "agent", "timeout", "argument-hint", "arguments"})
_MARK = re.compile(r"(?P<escape>\\)?\$(?P<which>ARGUMENTS\b|[1-9](?!\d))")


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
    hint: str = ""
    """Description of its arguments, for the help."""
    rules: "tuple[ArgumentRule, ...] | None" = None
    """Rules of its arguments, in order; None: any arguments."""
    warnings: tuple[str, ...] = ()
    """Entries that have no effect here."""

    def to_dict(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("name", "path", "description", "agent", "timeout")}
        return {**own, "argument_hint": self.hint, "warnings": list(self.warnings)}


def places(root: Path) -> dict[str, Path]:
    """Command names and files of this project, readable or not. Reads no file."""
    return {path.stem: path for path in _files(root) if is_name(path.stem)}


def _files(root: Path) -> list[Path]:
    """A README is not a command."""
    found = sorted((root / OWN).glob("*.md"))
    return [path for path in found if not path.name.startswith(("_", ".")) and path.stem.upper() != "README"]


def find(root: Path, name: str, trust: "ProjectTrust | None" = None) -> CommandFile | None:
    """The command of that name; None if no file has it. Raises `Misused` with the fault of its file, also if it is not approved. `trust`:
    the approvals, if already read."""
    path = places(root).get(name)
    return None if path is None else read(path, root, trust)


def every(root: Path, taken: Collection[str] = (), trust: "ProjectTrust | None" = None) -> tuple[list[CommandFile], list[str]]:
    """All runnable commands, and the faults of the others, one line each. `taken`: names of built-in commands."""
    problems: list[str] = []
    found: list[CommandFile] = []
    for path in _files(root):
        where = f"{OWN}/{path.name}"
        if not is_name(path.stem):
            problems.append(f"{where}: {path.stem!r} is not a name for a command: use letters, digits, - and _.")
        elif path.stem in taken:
            problems.append(f"{where}: `remit {path.stem}` is a built-in command and cannot be replaced. Rename the file.")
        else:
            try:
                found.append(read(path, root, trust))
            except Misused as error:
                problems.append(error.message)
    return found, problems


def is_name(name: str) -> bool:
    return name.casefold() != "readme" and len(name) <= LONGEST_NAME and _NAME.fullmatch(name) is not None


def read(path: Path, root: Path, trust: "ProjectTrust | None" = None) -> CommandFile:
    """The command of a file. Raises `Misused`; `NotApproved` if no person approved it."""
    # Imported here: projects without such files need not load YAML.
    from remit.agents.agent_files import read_with_or_without_head
    from remit.agents.project_files import NotApproved
    from remit.system.trust import load_trust

    try:
        page = read_with_or_without_head(path, root, trust or load_trust(root))
    except NotApproved as error:
        raise NotApproved(f"{OWN}/{path.name} is not approved.", advice=error.advice) from None
    except Misused as error:
        raise Misused(f"{OWN}/{path.name}: {error.message}", advice="Fix that file.") from None
    return command_of(page)


def command_of(page: "Page") -> CommandFile:
    """The command of a page. Raises `Misused` with its file."""
    where, head = f"{OWN}/{page.path.name}", dict(page.head)
    if not page.body:
        raise Misused(f"{where}: it has no text below its front matter.")
    if isinstance(hint := head.get("argument-hint"), list):  # YAML parses `argument-hint: [path]` as a list
        head["argument-hint"] = " ".join(f"[{one}]" for one in hint)
    for key in ("description", "agent", "argument-hint"):
        if isinstance(head.get(key), bool | list | Mapping):
            raise _fault(page, f"{key} must be text, not a {type(head[key]).__name__}.")
    unknown = ", ".join(sorted(map(str, set(head) - _KNOWN)))[:200]
    first_line = next((line.strip(" #") for line in page.body.splitlines() if line.strip(" #")), "")
    rules = _rules(page) if "arguments" in head else None
    timeout = head.get("timeout")
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout < float("inf")):
        raise _fault(page, f"timeout must be a positive number of seconds, not {timeout!r}.")
    description, agent, hint = (" ".join(str(head.get(key) or "").split()) for key in ("description", "agent", "argument-hint"))
    return CommandFile(
        name=page.path.stem,
        path=where,
        body=page.body,
        description=description or shorten(first_line, 100),
        agent=agent or None,
        timeout=None if timeout is None else float(timeout),
        hint=hint or " ".join(rule.usage for rule in rules or ()),
        rules=rules,
        warnings=(f"{where}: ignored keys: {unknown}.",) if unknown else (),
    )


def _fault(page: "Page", words: str) -> Misused:
    return Misused(f"{OWN}/{page.path.name}: {words}")


# ---- arguments


_KINDS = {"text": str, "integer": int, "number": float}
_RULE = re.compile(r"(text|integer|number)(\.\.\.)?(\?)?")


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


def _rules(page: "Page") -> tuple[ArgumentRule, ...]:
    """`arguments` of the front matter: names with `text`, `integer`, `number` or a list of words; `...`: one or more, `?` suffix: optional.
    Optional ones, then one with `...`, go last."""
    given = page.head["arguments"]
    rules: list[ArgumentRule] = []
    for key, value in given.items() if isinstance(given, Mapping) else [("arguments", given)]:
        name, choices = str(key), tuple(map(str, value)) if isinstance(value, list) else ()
        found = _RULE.fullmatch("text" if choices else str(value))
        if found is None or not is_name(name) or not isinstance(given, Mapping):
            words = f"argument {name:.40} has the kind {value!s:.40}. Use {', '.join(_KINDS)}, a list of words, ... and ?."
            raise _fault(page, words)
        rule = ArgumentRule(name=name, kind=found[1], choices=choices, is_rest=bool(found[2]), is_required=not found[3])
        if rules and (rules[-1].is_rest or (rule.is_required and not rules[-1].is_required)):
            raise _fault(page, f"argument {name} cannot follow {rules[-1].name}: optional ones, then one with ..., go last.")
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


def fill_arguments(body: str, arguments: Sequence[str]) -> str:
    """The text with its arguments. `$ARGUMENTS` is all of them, `$1` to `$9` one each; `\\$1` stays `$1`.

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
    return f"{text.rstrip()}\n\n{'More arguments' if asked else 'Arguments'}: {' '.join(rest)}" if rest else text
