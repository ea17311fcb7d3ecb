"""`remit install`: writes an MCP entry into the project configuration of a coding agent; `--undo` removes it.

The change is shown as a diff first. TOML is edited with tomlkit, JSON with the standard library. A JSON file with comments is not written,
because they would be lost: the entry is printed for the user to paste. The vendors' `mcp add` commands are not used: none can express the
whole entry for one project."""

import difflib
import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable
from dataclasses import dataclass
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

PASSED = (
    "REMIT_CALLER", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "CLAUDE_CONFIG_DIR",
    "CODEX_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL",
)  # fmt: skip
"""Variables that codex must pass on: the caller of a delegation, and the keys that agents need."""
CODEX_START_SECONDS = 60
CODEX_TOOL_SECONDS = 3600
OPENCODE_TIMEOUT_MS = 60_000
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

    def edited(self, text: str, entry: Entry | None) -> str:
        """The text with the entry, or without one; empty if nothing is left. Raises `ValueError` if it cannot be parsed."""
        is_toml, (servers, name) = self.files[0].endswith(".toml"), self.path
        document: Any = tomlkit.parse(text) if is_toml else json.loads(text.strip() or "{}")
        if not isinstance(document, dict) or not isinstance(document.get(servers, {}), dict):
            raise Misused(f"{servers} must be a table of servers.", advice="Fix the file and try again; nothing was changed.")
        before = document.get(servers, {}).get(name)
        if (before.unwrap() if hasattr(before, "unwrap") else before) == entry:
            return text
        if entry is not None:
            if not text.strip() and self.schema:
                document["$schema"] = self.schema
            if servers not in document:
                document[servers] = tomlkit.table(is_super_table=True) if is_toml else {}
            document[servers][name] = entry
        else:
            del document[servers][name]
            if not document[servers]:
                del document[servers]
            if not document.keys() - {"$schema"}:
                return ""
        if is_toml:
            return tomlkit.dumps(document)
        indent = re.search(r"\n([ \t]+)", text)
        end = "\n" if not text or text.endswith("\n") else ""
        return json.dumps(document, indent=indent[1] if indent else 2, ensure_ascii=False) + end


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
            if self.after is not None:
                self.file.parent.mkdir(parents=True, exist_ok=True)
                atomic_write(self.file, self.after)
            else:
                self.file.unlink()
                if self.file.parent != self.root and not any(self.file.parent.iterdir()):
                    self.file.parent.rmdir()
        except OSError as error:
            raise Unavailable(f"Cannot change {self.file}: {error.strerror or error}.", advice="Look at the file and try again.") from None


def plan_install(tool: Tool, root: Path, entry: Entry | None) -> FileChange | None:
    """The change of the tool's configuration of this project that writes the entry, or removes it; None if the file has comments."""
    file = tool.file_in(root)
    before = bytes_of(file)
    try:
        text = (before or b"").decode("utf-8-sig").replace("\r\n", "\n")
        edited = tool.edited(text, entry)
    except json.JSONDecodeError:  # comments or trailing commas, or not JSON at all
        return None
    except (TOMLKitError, UnicodeError, RecursionError) as fault:
        raise Misused(f"{file}: {fault}.", advice="Fix the file and try again; nothing was changed.") from None
    return FileChange(root=root, file=file, before=before, after=before if edited == text else edited.encode() or None)


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
    undo: Annotated[bool, Option("--undo", help="Remove the entry.")] = False,
    yes: Annotated[bool, Option("--yes", "-y", help="Do not ask.")] = False,
    approve: Annotated[bool, Option("--approve", help="codex: let it call remit's tools without asking, as `codex exec` needs.")] = False,
) -> Exit:
    """Let a coding agent delegate: write remit as an MCP server into its configuration of this project. Shows the change and asks."""
    if tool not in TOOLS:
        raise Misused(f"remit cannot be installed into {tool!r}.", advice=f"Name one of {', '.join(TOOLS)}.")
    known, command = TOOLS[tool], command_here()
    entry = known.entry(command) | ({"default_tools_approval_mode": "approve"} if approve and tool == "codex" else {})
    change = plan_install(known, project.root, None if undo else entry)
    name = known.file_in(project.root).relative_to(project.root).as_posix()
    if change is None:
        return _to_paste(project, known, name, entry, undo=undo)
    notes = [NO_MCP] if not undo and not has_mcp() else []
    if not undo and command != ("remit",):
        notes.append(f"remit is not on PATH, so {command[0]} is written: that works on this machine only.")
    changes = change.after != change.before
    if not project.as_json:
        if changes:
            change.show()
        else:
            say(f"Nothing to do: {name} {'has no entry for remit' if undo else 'has the entry for remit'}.")
        for note in notes:
            say_aside(f"Note: {note}")
    code = consent(project, "Make this change?", yes=yes) if changes else Exit.OK
    is_made = changes and code is Exit.OK
    if is_made:
        change.make()
    document = {"tool": tool, "file": name, "is_made": is_made, "diff": change.diff(), "notes": notes, "paste": None}
    done = f"Removed remit from {name}." if undo else f"Wrote the entry for remit into {name}.\n{known.then}"
    return project.answer(document, done if is_made else lambda: None, code)


def _to_paste(project: Project, tool: Tool, name: str, entry: Entry, *, undo: bool) -> Exit:
    """Print the entry of a file with comments."""
    table, key = tool.path
    paste = f"{table}.{key}" if undo else json.dumps({key: entry}, indent=2)[2:-2]
    text = f"Remove {paste} from {name}." if undo else f'Paste this into "{table}" of {name}:\n\n{paste}\n'
    if not project.as_json:
        say_aside(f"{name} is not plain JSON: comments would be lost. Nothing was changed.")
    document = {"tool": tool.name, "file": name, "is_made": False, "diff": "", "notes": [], "paste": paste}
    return project.answer(document, text, Exit.BLOCKED)


def consent(project: Project, question: str, *, yes: bool) -> Exit:
    """Ask for consent to what was shown. Anything but `Exit.OK` means: do not do it."""
    if yes:
        return Exit.OK
    if project.as_json or not sys.stdin.isatty():
        say_aside("Nothing was changed: there is no terminal to ask at. Look at it, then run it again with --yes.")
        return Exit.BLOCKED
    try:
        return Exit.OK if typer.confirm(question, default=False) else Exit.CANCELLED
    except typer.Abort:  # Ctrl-C or end of input instead of an answer
        say_aside("\nNothing was changed.")
        return Exit.INTERRUPTED


def command_here() -> tuple[str, ...]:
    """The command that starts this remit: its name if the shell finds this one by it, else its path."""
    found = shutil.which("remit")
    if found is not None and os.path.realpath(found) == os.path.realpath(Path(sys.executable).parent / "remit"):
        return ("remit",)
    return tuple(remit_command())
