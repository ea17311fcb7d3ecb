"""`remit install`: write remit's MCP entry into the project's configuration of a coding agent; `--undo` removes it.

The change is shown as a diff before it is made. The file as it was is kept beside it, so that `--undo` can restore it byte by byte.
TOML is edited with tomlkit, JSON with the standard library. A file with comments that JSON would lose is not written: its entry is
printed for the user to paste. No vendor's `mcp add` is called: none of them can express the whole entry for one project.
"""

import contextlib
import difflib
import json
import os
import re
import shutil
import stat
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import tomlkit
import typer
from tomlkit.exceptions import TOMLKitError

from remit.cli.exits import Exit
from remit.cli.project import NO_MCP, Project, has_mcp
from remit.cli.render import say, say_aside
from remit.core.errors import Misused, Unavailable
from remit.system.files import atomic_write
from remit.system.interpreter import remit_command

BACKUP = ".remit-backup"
FOLDERS = (".codex", ".opencode")
"""Made for our file, and removed with it when they are empty."""
PASSED = (
    "REMIT_CALLER", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CONFIG_DIR",
    "CODEX_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL",
)  # fmt: skip
"""Variables that codex must pass on: the caller of a delegation, and what the agents behind remit need."""
APPROVAL = "default_tools_approval_mode"
CODEX_START_SECONDS = 60
CODEX_TOOL_SECONDS = 3600
OPENCODE_TIMEOUT_MS = 60_000
ASK_CODEX = "May codex call remit's tools without asking? `codex exec` can call them only then."
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'("(?:\\.|[^"\\])*")|,(?=\s*[}\]])')
Entry = dict[str, Any]


class Does(StrEnum):
    """What is done to a file."""

    NOTHING = "nothing"
    MAKE = "make"
    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"
    """The rest of the file was changed since, and stays."""
    RESTORE = "restore"
    DELETE = "delete"
    PASTE = "paste"
    """Nothing is written: the user edits the file."""


DONE = {
    Does.MAKE: "Created {file} with the entry for remit.",
    Does.ADD: "Added remit to {file}. The original: {backup}.",
    Does.CHANGE: "Changed the entry of remit in {file}. The original: {backup}.",
    Does.REMOVE: "Removed remit from {file}; everything else is unchanged.",
    Does.RESTORE: "Restored {file}.",
    Does.DELETE: "Deleted {file}: it contained nothing else.",
}


class Unfit(Exception):
    """The text does not parse, or the change cannot be made in it; says why."""


class HasComments(Unfit):
    """JSON with comments or trailing commas: it can be read, and not be written without losing them."""


# ---- the two formats: read the values, put the entry in, take it out


def _check_tables(document: Any, path: tuple[str, ...]) -> None:
    for place, key in enumerate(path[:-1]):
        document = document.get(key, {})
        if not isinstance(document, dict):
            raise Unfit(f"{'.'.join(path[: place + 1])} must be a table of servers")


class JsonFormat:
    def __init__(self, schema: str = "") -> None:
        self._start = {"$schema": schema} if schema else {}

    def read(self, text: str) -> Entry:
        if not text.strip():
            return {}
        plain = _LAST_COMMA.sub(lambda found: found[1] or "", _COMMENT.sub(lambda found: found[1] or "", text))
        try:
            document = json.loads(plain)
        except json.JSONDecodeError as error:
            raise Unfit(f"line {error.lineno}: {error.msg[:1].lower()}{error.msg[1:]}") from None
        except RecursionError:
            raise Unfit("it is nested too deeply") from None
        if not isinstance(document, dict):
            raise Unfit("line 1: the document must be an object { … }")
        return document

    def write(self, text: str, path: tuple[str, ...], entry: Entry | None) -> str:
        """With the entry at `path`; None removes it, and the object above it when that is empty then."""
        document = self._strict(text)
        _check_tables(document, path)
        above = document
        for key in path[:-1]:
            above = above.setdefault(key, {})
        if entry is not None:
            above[path[-1]] = entry
        else:
            above.pop(path[-1], None)
            if not above and len(path) > 1:
                del document[path[0]]
        indent = re.search(r"\n([ \t]+)", text)
        made = json.dumps(document, indent=indent[1] if indent else 2, ensure_ascii=False)
        return made.replace("\n", "\r\n" if "\r\n" in text else "\n") + ("\n" if not text or text.endswith("\n") else "")

    def _strict(self, text: str) -> Entry:
        if not text.strip():
            return dict(self._start)

        def pairs(found: list[tuple[str, Any]]) -> Entry:
            if len(dict(found)) < len(found):
                raise Unfit("a key is written twice")
            return dict(found)

        try:
            return json.loads(text, object_pairs_hook=pairs)  # type: ignore[no-any-return]
        except ValueError:
            raise HasComments("it has comments or trailing commas, which would be lost") from None

    def is_empty(self, document: Entry) -> bool:
        return not [key for key in document if key != "$schema"]


class TomlFormat:
    def read(self, text: str) -> Entry:
        try:
            return tomllib.loads(text.replace("\r\n", "\n"))
        except tomllib.TOMLDecodeError as error:
            raise Unfit(str(error)) from None
        except RecursionError:
            raise Unfit("it is nested too deeply") from None

    def write(self, text: str, path: tuple[str, ...], entry: Entry | None) -> str:
        _check_tables(self.read(text), path)
        servers, name = path
        try:
            document = tomlkit.parse(text)
            if servers not in document:
                document[servers] = tomlkit.table(is_super_table=True)
            above: Any = document[servers]
            if entry is not None:
                above[name] = entry
            else:
                above.pop(name, None)
                if not above:
                    document.pop(servers)
            made = tomlkit.dumps(document)
        except (TOMLKitError, RecursionError, AttributeError, TypeError) as error:
            raise Unfit(f"it cannot be edited: {error}") from None
        return made.replace("\r\n", "\n").replace("\n", "\r\n") if "\r\n" in text else made

    def is_empty(self, document: Entry) -> bool:
        return not document


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    name: str
    files: tuple[str, ...]
    """Those it reads; the first that exists is changed, else the first is made."""
    path: tuple[str, str]
    format: JsonFormat | TomlFormat
    entry: Callable[[tuple[str, ...]], Entry]
    """The entry, given the command that starts remit."""
    then: str
    """What is left for the user to do."""

    def file_in(self, root: Path) -> Path:
        file = next((root / name for name in self.files if os.path.lexists(root / name)), root / self.files[0])
        if not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(root)):
            raise Misused(f"{file} is a link that leads out of the project.", advice="Change the file it leads to by hand.")
        return file


TOOLS = {
    "claude": Tool(
        name="claude",
        files=(".mcp.json",),
        path=("mcpServers", "remit"),
        format=JsonFormat(),
        entry=lambda command: {"command": command[0], "args": [*command[1:], "mcp"]},
        then="Claude Code asks once whether the project's servers may be used: answer yes. Then: claude mcp list",
    ),
    "codex": Tool(
        name="codex",
        files=(".codex/config.toml",),
        path=("mcp_servers", "remit"),
        format=TomlFormat(),
        entry=lambda command: {
            "command": command[0],
            "args": [*command[1:], "mcp"],
            "env_vars": list(PASSED),
            "required": True,
            "startup_timeout_sec": CODEX_START_SECONDS,
            "tool_timeout_sec": CODEX_TOOL_SECONDS,
        },
        then="Codex reads a project's configuration only where the project is trusted: answer yes when it asks. Then: codex mcp list",
    ),
    "opencode": Tool(
        name="opencode",
        files=("opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"),
        path=("mcp", "remit"),
        format=JsonFormat(schema="https://opencode.ai/config.json"),
        entry=lambda command: {"type": "local", "command": [*command, "mcp"], "enabled": True, "timeout": OPENCODE_TIMEOUT_MS},
        then="Then: opencode mcp list",
    ),
}


# ---- the change of one file


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    tool: Tool
    root: Path
    file: Path
    before: bytes | None
    """None: there is no such file."""
    after: bytes | None
    does: Does = Does.NOTHING
    backup: Path | None = None
    """Where the original is kept; for `--undo` the file it is restored from."""
    notes: tuple[str, ...] = ()
    paste: str = ""
    """For the user to paste, or to remove."""

    @property
    def name(self) -> str:
        return self.file.relative_to(self.root).as_posix()

    def diff(self) -> str:
        old, new = ((side or b"").decode(errors="replace").splitlines() for side in (self.before, self.after))
        names = (self.name if self.before is not None else "/dev/null", self.name if self.after is not None else "/dev/null")
        return "\n".join(difflib.unified_diff(old, new, *names, lineterm=""))

    def make(self) -> None:
        """Write it, if the file is still as it was when the change was planned."""
        if _bytes_of(self.file) != self.before:
            raise Unavailable(f"{self.file} was changed meanwhile; nothing was written.", advice="Look at it and try again.")
        kept = self.backup if self.does in (Does.ADD, Does.CHANGE) else None
        try:
            if kept is not None:
                _write_new(kept, self.before or b"", like=self.file)
            if self.after is None:
                Path(os.path.realpath(self.file)).unlink()  # the file that a link leads to; the link was there before
                with contextlib.suppress(OSError):  # something else is in the folder
                    if self.file.parent.name in FOLDERS:
                        self.file.parent.rmdir()
                return
            self.file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(f"Cannot change {self.file}: {error.strerror or error}.", advice="Nothing was changed in it.") from None
        try:
            atomic_write(self.file, self.after)
        except Unavailable:
            if kept is not None:
                kept.unlink(missing_ok=True)
            raise
        if self.does is Does.RESTORE and self.backup is not None:
            self.backup.unlink(missing_ok=True)


def plan_install(tool: Tool, root: Path, command: tuple[str, ...], *, approve: bool | None = None) -> Change:
    """The change that adds remit to the tool's configuration of this project. `approve` None keeps the approval mode."""
    file = tool.file_in(root)
    before, entry = _bytes_of(file), tool.entry(command)
    change = Change(tool=tool, root=root, file=file, before=before, after=before)
    with _faults(file):
        text = _text_of(before or b"")
        known = _entry_in(tool, text)
        if tool.name == "codex":
            mode = known.get(APPROVAL) if isinstance(known, dict) and approve is None else "approve" if approve else None
            entry |= {APPROVAL: mode} if mode else {}
        if known == entry:
            return change
        notes = () if command == ("remit",) else (f"remit is not on PATH, so {command[0]} is written: that works on this machine only.",)
        try:
            after = _with_mark(before, tool.format.write(text, tool.path, entry))
        except HasComments:
            return replace(change, does=Does.PASTE, notes=notes, paste=json.dumps({tool.path[1]: entry}, indent=2)[2:-2])
        _check_rest(tool, text, after, entry)
    if before is None:
        return replace(change, does=Does.MAKE, after=after, notes=notes)
    if known is not None:
        notes = (f"The entry {'.'.join(tool.path)} has other values: it would be replaced.", *notes)
    return replace(change, does=Does.ADD if known is None else Does.CHANGE, after=after, backup=_next_backup(file), notes=notes)


def plan_undo(tool: Tool, root: Path) -> Change:
    """The change that restores the file; changes that others made since are kept."""
    file = tool.file_in(root)
    before = _bytes_of(file)
    change = Change(tool=tool, root=root, file=file, before=before, after=before)
    if before is None:
        return change
    found = _backups(file)
    backup = found[max(found)] if found else None
    original = _bytes_of(backup) if backup is not None else None
    with _faults(file):
        text = _text_of(before)
        entry, earlier = _entry_in(tool, text), None
        if entry is None:
            return change
        if original is not None:
            with contextlib.suppress(Unfit):
                old = _text_of(original)
                earlier = _entry_in(tool, old)
                if _with_mark(original, tool.format.write(old, tool.path, entry)) == before:
                    return replace(change, does=Does.RESTORE, after=original, backup=backup)
        try:
            after = _with_mark(before, tool.format.write(text, tool.path, earlier))
        except HasComments:
            return replace(change, does=Does.PASTE, paste=".".join(tool.path))
        _check_rest(tool, text, after, earlier)
        is_ours = tool.format.write("", tool.path, entry) == text
        if tool.format.is_empty(tool.format.read(_text_of(after))) and (original is None or is_ours) and b"#" not in after:
            return replace(change, does=Does.DELETE, after=None)
    notes = (f"The file was changed since: only the entry is removed. The original: {backup.name}.",) if backup else ()
    return replace(change, does=Does.REMOVE, after=after, backup=backup, notes=notes)


def _entry_in(tool: Tool, text: str) -> Any:
    document = tool.format.read(text)
    _check_tables(document, tool.path)
    return document.get(tool.path[0], {}).get(tool.path[1])


def _check_rest(tool: Tool, text: str, after: bytes, entry: Entry | None) -> None:
    """Read back, the new text has the entry, and everything else has the values it had."""

    def rest(document: Entry) -> str:
        servers = {name: value for name, value in document.get(tool.path[0], {}).items() if name != tool.path[1]}
        return repr({**{key: value for key, value in document.items() if key not in (tool.path[0], "$schema")}, tool.path[0]: servers})

    new = tool.format.read(_text_of(after))
    if new.get(tool.path[0], {}).get(tool.path[1]) != entry or rest(new) != rest(tool.format.read(text)):
        raise Unfit(f"{'.'.join(tool.path)} cannot be changed without touching the rest")


@contextlib.contextmanager
def _faults(file: Path) -> Any:
    try:
        yield
    except Unfit as fault:
        raise Misused(f"{file}: {fault}.", advice="Fix the file and try again; nothing was changed.") from None


def _with_mark(before: bytes | None, text: str) -> bytes:
    """Some editors write a byte order mark; it stays."""
    try:
        return (b"\xef\xbb\xbf" if (before or b"").startswith(b"\xef\xbb\xbf") else b"") + text.encode()
    except UnicodeEncodeError:  # JSON writes it as an escape
        raise Unfit("it has half a character, which UTF-8 text cannot contain") from None


def _text_of(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unfit(f"line {data[: error.start].count(10) + 1}: it is not UTF-8 text") from None


def _bytes_of(file: Path) -> bytes | None:
    try:
        if not stat.S_ISREG(file.stat().st_mode):  # reading a pipe would wait for ever
            raise Misused(f"{file} is not a file.", advice="Put a file in its place and try again; nothing was changed.")
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"Cannot read {file}: {error.strerror or error}.", advice="Nothing was changed.") from None


def _backups(file: Path) -> dict[int, Path]:
    """By number: the first has none in its name."""
    pattern = re.compile(re.escape(f"{file.name}{BACKUP}") + r"(?:-(\d{1,6}))?")
    with contextlib.suppress(OSError):
        return {int(match[1] or 1): file.with_name(name) for name in os.listdir(file.parent) if (match := pattern.fullmatch(name))}
    return {}


def _next_backup(file: Path) -> Path:
    number = max(_backups(file), default=0) + 1
    return file.with_name(f"{file.name}{BACKUP}" + (f"-{number}" if number > 1 else ""))


def _write_new(path: Path, data: bytes, *, like: Path) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, stat.S_IMODE(like.stat().st_mode))
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(data)
        opened.flush()
        os.fsync(descriptor)


# ---- the command


def install(
    project: Project,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="claude, codex or opencode.", show_default=False)],
    undo: Annotated[bool, typer.Option("--undo", help="Remove the entry and restore the file.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    approve: Annotated[
        bool | None,
        typer.Option("--approve/--no-approve", help="codex: whether it may call remit's tools without asking.", show_default=False),
    ] = None,
) -> Exit:
    """Let a coding agent delegate: write remit as an MCP server into its configuration of this project. Shows the change and asks."""
    if tool not in TOOLS:
        raise Misused(f"remit cannot be installed into {tool!r}.", advice=f"Name one of {', '.join(TOOLS)}.")
    can_ask = not project.as_json and not yes and sys.stdin.isatty()
    try:
        if tool == "codex" and approve is None and not undo and can_ask:
            approve = typer.confirm(ASK_CODEX, default=False)
        change = plan_undo(TOOLS[tool], project.root) if undo else plan_install(TOOLS[tool], project.root, command_here(), approve=approve)
        notes = [*change.notes, *([] if undo else _notes(change, approve=approve))]
        if not project.as_json:
            _show(change, notes, undo=undo)
        code = _consent(change, yes=yes, can_ask=can_ask)
    except typer.Abort:  # Ctrl-C or the end of the input instead of an answer
        say_aside("\nNothing was changed.")
        return Exit.INTERRUPTED
    is_made = code is Exit.OK and change.does is not Does.NOTHING
    if is_made:
        change.make()
    backup = change.backup.relative_to(project.root).as_posix() if change.backup else None
    document = {"tool": tool, "file": change.name, "does": str(change.does), "is_made": is_made, "diff": change.diff(), "backup": backup}
    done = DONE.get(change.does, "").format(file=change.name, backup=backup) + ("" if undo else f"\n{change.tool.then}")
    return project.answer({**document, "notes": notes, "paste": change.paste or None}, done if is_made else lambda: None, code)


def _consent(change: Change, *, yes: bool, can_ask: bool) -> Exit:
    if change.does is Does.PASTE:
        return Exit.BLOCKED
    if change.does is Does.NOTHING or yes:
        return Exit.OK
    if not can_ask:
        say_aside("Nothing was changed: there is no terminal to ask at. Look at the change, then run it again with --yes.")
        return Exit.BLOCKED
    return Exit.OK if typer.confirm("Make this change?", default=False) else Exit.CANCELLED


def _notes(change: Change, *, approve: bool | None) -> list[str]:
    """What keeps a correct entry from working."""
    notes = [] if has_mcp() else [NO_MCP]
    if change.does is Does.NOTHING:
        return notes
    if command_here() == ("remit",) and _is_found_here_only():
        notes.append("`remit` is found in the virtual environment that is active here: another terminal may not find it.")
    if change.tool.name == "codex" and approve is None:
        notes.append("`codex exec` calls remit's tools only with --approve; without it codex asks before each call.")
    return notes


def _show(change: Change, notes: list[str], *, undo: bool) -> None:
    if change.does is Does.PASTE:
        say_aside(f"{change.name} has comments or trailing commas, which rewriting it would lose. Nothing was changed.")
        where = change.tool.path[0]
        say(f"Remove {change.paste} from {change.name}." if undo else f'Paste this into "{where}" of {change.name}:\n\n{change.paste}\n')
    elif diff := change.diff():
        if change.root != Path.cwd():
            say_aside(f"The project is {change.root}.")
        print(diff, flush=True)  # lines of a diff must not be wrapped
    else:
        say(f"Nothing to do: {change.name} {'has no entry for remit' if undo else 'has the entry for remit'}.")
    for note in notes:
        say_aside(f"Note: {note}")


def _is_found_here_only() -> bool:
    """Whether a shell finds this remit only because a virtual environment is active."""
    found = shutil.which("remit")
    return sys.prefix != sys.base_prefix and found is not None and os.path.dirname(found) == os.path.dirname(sys.executable)


def command_here() -> tuple[str, ...]:
    """How a tool starts this very remit: by its name where a shell finds this one by it, else by its path."""
    found = shutil.which("remit")
    if found is not None and os.path.realpath(found) == os.path.realpath(Path(sys.executable).parent / "remit"):
        return ("remit",)
    return tuple(remit_command())
