"""`remit install`: write remit's MCP entry into the project configuration of a coding agent; `--undo` removes it.

The change is shown as a diff first. A backup of the file is kept beside it, so that `--undo` restores it byte by byte. TOML is edited with
tomlkit, JSON with the standard library. A JSON file with comments is not written, because they would be lost: the entry is printed for the
user to paste. The vendors' `mcp add` commands are not used: none can express the whole entry for one project."""

import difflib
import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tomlkit
import typer
from tomlkit.exceptions import TOMLKitError
from typer import Argument, Option

from remit.cli.exits import Exit
from remit.cli.project import NO_MCP, Project, has_mcp
from remit.cli.render import harmless, say, say_aside
from remit.core.errors import Misused, Unavailable
from remit.system.beneath import path_inside
from remit.system.files import atomic_write
from remit.system.interpreter import remit_command

BACKUP = ".remit-backup"
PASSED = (
    "REMIT_CALLER", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CONFIG_DIR",
    "CODEX_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL",
)  # fmt: skip
"""Variables that codex must pass on: the caller of a delegation, and the keys that agents need."""
APPROVAL = "default_tools_approval_mode"
CODEX_START_SECONDS = 60
CODEX_TOOL_SECONDS = 3600
OPENCODE_TIMEOUT_MS = 60_000
DONE = {
    "make": "Created {file} with the entry for remit.",
    "change": "Wrote the entry for remit into {file}. The original: {backup}.",
    "remove": "Removed remit from {file}; everything else is unchanged.",
    "restore": "Restored {file}.",
    "delete": "Deleted {file}: it contained nothing else.",
}
"""By kind of change; `nothing` and `paste` write nothing."""
Entry = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    name: str
    files: tuple[str, ...]
    """Files that the tool reads. The first existing one is changed, else the first is created."""
    path: tuple[str, str]
    entry: Callable[[tuple[str, ...]], Entry]
    """Builds the entry from the command that starts remit."""
    then: str
    """Next steps for the user."""
    schema: str = ""

    def file_in(self, root: Path) -> Path:
        return inside(next((root / name for name in self.files if os.path.lexists(root / name)), root / self.files[0]), root)

    def parse(self, text: str) -> Any:
        """The document and its table of servers. Raises `ValueError`."""
        document: Any = tomlkit.parse(text) if self.files[0].endswith(".toml") else json.loads(text.strip() or "{}")
        if not isinstance(document, dict) or not isinstance(document.get(self.path[0], {}), dict):
            raise Misused(f"{self.path[0]} must be a table of servers.", advice="Fix the file and try again; nothing was changed.")
        return document

    def entry_in(self, text: str) -> Any:
        entry = self.parse(text).get(self.path[0], {}).get(self.path[1])
        return entry.unwrap() if hasattr(entry, "unwrap") else entry

    def write(self, text: str, entry: Entry | None) -> str:
        """Add the entry. None removes it, and its table if that becomes empty."""
        document, (servers, name) = self.parse(text), self.path
        is_toml = self.files[0].endswith(".toml")
        if not text.strip() and self.schema:
            document["$schema"] = self.schema
        if servers not in document:
            document[servers] = tomlkit.table(is_super_table=True) if is_toml else {}
        if entry is not None:
            document[servers][name] = entry
        else:
            document[servers].pop(name, None)
            if not document[servers]:
                document.pop(servers)
        if is_toml:
            return tomlkit.dumps(document)
        indent = re.search(r"\n([ \t]+)", text)
        return json.dumps(document, indent=indent[1] if indent else 2, ensure_ascii=False) + (
            "\n" if not text or text.endswith("\n") else ""
        )


TOOLS = {
    "claude": Tool(
        name="claude",
        files=(".mcp.json",),
        path=("mcpServers", "remit"),
        entry=lambda command: {"command": command[0], "args": [*command[1:], "mcp"]},
        then="Claude Code asks once whether the project's servers may be used: answer yes. Then: claude mcp list",
    ),
    "codex": Tool(
        name="codex",
        files=(".codex/config.toml",),
        path=("mcp_servers", "remit"),
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
        entry=lambda command: {"type": "local", "command": [*command, "mcp"], "enabled": True, "timeout": OPENCODE_TIMEOUT_MS},
        then="Then: opencode mcp list",
        schema="https://opencode.ai/config.json",
    ),
}


# ---- the change of one file


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A change of a project file: shown as a diff, then written."""

    root: Path
    file: Path
    before: bytes | None
    """None: the file does not exist."""
    after: bytes | None

    @property
    def name(self) -> str:
        return self.file.relative_to(self.root).as_posix()

    def diff(self) -> str:
        old, new = ((side or b"").decode(errors="replace").splitlines() for side in (self.before, self.after))
        names = (self.name if self.before is not None else "/dev/null", self.name if self.after is not None else "/dev/null")
        return "\n".join(difflib.unified_diff(old, new, *names, lineterm=""))

    def show(self) -> None:
        print(harmless(self.diff()), flush=True)  # lines of a diff must not be wrapped

    def make(self) -> None:
        """Write the file, if it has not changed since the change was planned."""
        if bytes_of(self.file) != self.before:
            raise Unavailable(f"{self.file} was changed meanwhile; nothing was written.", advice="Look at it and try again.")
        try:
            self._replace()
        except OSError as error:
            raise Unavailable(f"Cannot change {self.file}: {error.strerror or error}.", advice="Look at the file and try again.") from None

    def _replace(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(self.file, self.after or b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(FileChange):
    """A change of a tool's configuration. The original is kept beside it; an older backup is not overwritten."""

    tool: Tool
    does: str = "nothing"
    notes: tuple[str, ...] = ()
    paste: str = ""
    """Text for the user to paste or to remove."""

    @property
    def backup(self) -> Path:
        return self.file.with_name(self.file.name + BACKUP)

    def _replace(self) -> None:
        if self.does == "change" and not self.backup.exists():
            shutil.copy2(self.file, self.backup)
        if self.after is None:
            Path(os.path.realpath(self.file)).unlink()  # the target of the link; the link itself stays
            if self.file.parent != self.root and not any(self.file.parent.iterdir()):
                self.file.parent.rmdir()
        else:
            FileChange._replace(self)
        if self.does in ("restore", "delete"):
            self.backup.unlink(missing_ok=True)


def plan_install(tool: Tool, root: Path, command: tuple[str, ...], *, approve: bool | None = None) -> Change:
    """The change that adds remit to the tool's configuration of this project. `approve` None keeps the approval mode."""
    entry = tool.entry(command)

    def added(change: Change, text: str) -> Change:
        known = tool.entry_in(text)
        if tool.name == "codex" and (mode := (known or {}).get(APPROVAL) if approve is None else "approve" if approve else None):
            entry[APPROVAL] = mode
        if known == entry:
            return change
        notes = () if command == ("remit",) else (f"remit is not on PATH, so {command[0]} is written: that works on this machine only.",)
        if known is not None:
            notes = (f"The entry {'.'.join(tool.path)} has other values: it would be replaced.", *notes)
        does = "make" if change.before is None else "change"
        return replace(change, does=does, after=tool.write(text, entry).encode(), notes=notes)

    return _planned(tool, root, added, paste=json.dumps({tool.path[1]: entry}, indent=2)[2:-2])


def plan_undo(tool: Tool, root: Path) -> Change:
    """The change that restores the file as it was; if it has been edited since, the one that removes the entry or restores the old one."""

    def removed(change: Change, text: str) -> Change:
        entry = tool.entry_in(text)
        if entry is None:
            return change
        original = bytes_of(change.backup)
        old = _text_of(original or b"")
        if text == tool.write(old, entry):
            return replace(change, does="delete" if original is None else "restore", after=original)
        notes = (f"The file was changed since: only the entry is removed. The original: {change.backup.name}.",) if original else ()
        return replace(change, does="remove", after=tool.write(text, tool.entry_in(old)).encode(), notes=notes)

    return _planned(tool, root, removed, paste=".".join(tool.path))


def _planned(tool: Tool, root: Path, plan: Callable[[Change, str], Change], *, paste: str) -> Change:
    file = tool.file_in(root)
    before = bytes_of(file)
    change = Change(tool=tool, root=root, file=file, before=before, after=before)
    try:
        return plan(change, _text_of(before or b""))
    except json.JSONDecodeError:  # comments or trailing commas, or not JSON at all
        return replace(change, does="paste", paste=paste)
    except (TOMLKitError, UnicodeError, RecursionError) as fault:
        raise Misused(f"{file}: {fault}.", advice="Fix the file and try again; nothing was changed.") from None


def _text_of(data: bytes) -> str:
    return data.decode("utf-8-sig").replace("\r\n", "\n")


def inside(file: Path, root: Path) -> Path:
    if path_inside(root, file) is None:
        raise Misused(f"{file} is a link that leads out of the project.", advice="Change the file it leads to by hand.")
    return file


def bytes_of(file: Path) -> bytes | None:
    try:
        if not stat.S_ISREG(file.stat().st_mode):  # reading a pipe would block for ever
            raise Misused(f"{file} is not a file.", advice="Put a file in its place and try again; nothing was changed.")
        return file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"Cannot read {file}: {error.strerror or error}.", advice="Nothing was changed.") from None


# ---- the command


def install(
    project: Project,
    tool: Annotated[str, Argument(metavar="TOOL", help="claude, codex or opencode.")],
    undo: Annotated[bool, Option("--undo", help="Remove the entry and restore the file.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    approve: Annotated[
        bool | None, Option("--approve/--no-approve", help="codex: whether it may call remit's tools without asking.")
    ] = None,
) -> Exit:
    """Let a coding agent delegate: write remit as an MCP server into its configuration of this project. Shows the change and asks."""
    if tool not in TOOLS:
        raise Misused(f"remit cannot be installed into {tool!r}.", advice=f"Name one of {', '.join(TOOLS)}.")
    can_ask = not project.as_json and not yes and sys.stdin.isatty()
    change = plan_undo(TOOLS[tool], project.root) if undo else plan_install(TOOLS[tool], project.root, command_here(), approve=approve)
    notes = [*change.notes, *([] if undo or has_mcp() else [NO_MCP])]
    if tool == "codex" and approve is None and change.does in ("make", "change") and not undo:
        notes.append("`codex exec` calls remit's tools only with --approve; without it codex asks before each call.")
    if not project.as_json:
        _show(change, notes, undo=undo)
    code = Exit.BLOCKED if change.paste else Exit.OK if change.does == "nothing" else consent(yes=yes, can_ask=can_ask)
    is_made = code is Exit.OK and change.does != "nothing"
    if is_made:
        change.make()
    backup = change.backup.relative_to(project.root).as_posix() if change.backup.exists() else None
    document = {"tool": tool, "file": change.name, "does": change.does, "is_made": is_made, "diff": change.diff(), "backup": backup}
    done = DONE.get(change.does, "").format(file=change.name, backup=backup) + ("" if undo else f"\n{change.tool.then}")
    return project.answer({**document, "notes": notes, "paste": change.paste or None}, done if is_made else lambda: None, code)


def consent(*, yes: bool, can_ask: bool) -> Exit:
    """Ask for consent to the shown change. Anything but `Exit.OK` means: do not write it."""
    if yes:
        return Exit.OK
    if not can_ask:
        say_aside("Nothing was changed: there is no terminal to ask at. Look at the change, then run it again with --yes.")
        return Exit.BLOCKED
    try:
        return Exit.OK if typer.confirm("Make this change?", default=False) else Exit.CANCELLED
    except typer.Abort:  # Ctrl-C or end of input instead of an answer
        say_aside("\nNothing was changed.")
        return Exit.INTERRUPTED


def _show(change: Change, notes: list[str], *, undo: bool) -> None:
    if change.paste:
        say_aside(f"{change.name} is not plain JSON: comments would be lost. Nothing was changed.")
        where = change.tool.path[0]
        say(f"Remove {change.paste} from {change.name}." if undo else f'Paste this into "{where}" of {change.name}:\n\n{change.paste}\n')
    elif change.diff():
        change.show()
    else:
        say(f"Nothing to do: {change.name} {'has no entry for remit' if undo else 'has the entry for remit'}.")
    for note in notes:
        say_aside(f"Note: {note}")


def command_here() -> tuple[str, ...]:
    """The command that starts this remit: its name if the shell finds this one by it, else its path."""
    found = shutil.which("remit")
    if found is not None and os.path.realpath(found) == os.path.realpath(Path(sys.executable).parent / "remit"):
        return ("remit",)
    return tuple(remit_command())
