"""Trust in a project: its files start nothing, send nothing and weaken no limit until a person has approved their content.

Approvals are kept outside the project, in `$XDG_STATE_HOME/remit/trust.json`: for each project the names and digests of approved files and
settings tables. `ProjectTrust` is the state of one project at one moment; loaders query it with the content that they have read."""

import contextlib
import hashlib
import json
import math
import os
import re
import shlex
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from glob import glob
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from remit.core.errors import Misused, Refused, RemitError, Unavailable
from remit.core.ids import CALLER
from remit.core.protected_paths import protection_of
from remit.core.redaction import redact_parameters, redact_text
from remit.core.settings import is_harmless
from remit.core.text import one_line
from remit.system.beneath import open_regular, real_path, resolve_inside
from remit.system.files import file_lock, private_folder, read_private, stamp_of, walk, write_beside, write_private
from remit.system.files import state_folder as state_folder
from remit.system.mcp_servers import is_server, seen_tools, server_key, tools_in, with_adopted
from remit.system.ownership import CODE as CODE
from remit.system.ownership import DATABASE, FOLDER, DatabaseBinding, must_stay_inside, owner_fault

DATABASE_KIND, OWNER, TOOLS = "database", "owner", "tools"
VARIABLE = "REMIT_TRUST"
"""`1` approves everything in every project; otherwise the hash that `remit trust --list` prints."""
ADVICE = "Review and approve: remit trust"
SETTINGS_FILES: Mapping[str, tuple[str, ...]] = {"pyproject.toml": ("tool", "remit"), "remit.toml": ()}
"""The table of remit in each; the later one takes precedence."""
POLICY = ".remit/policy.cedar"
FOLDERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    ".remit/agents": ("agent", (".py", ".md")),
    ".claude/agents": ("agent", (".md",)),
    ".opencode/agent": ("agent", (".md",)),
    ".opencode/agents": ("agent", (".md",)),
    ".remit/commands": ("command", (".md",)),
    ".remit/flows": ("flow", ("",)),
}
"""Folders whose files need approval: what they declare, and their file name suffixes."""
FILES = {POLICY: "policy", ".remit/assistant.md": "instructions"}
"""Single files that need approval."""
EFFECTS = {
    "instructions": "instructs the assistant",
    "command": "hands its text to an agent",
    "flow": "runs agents in turn",
    "policy": "replaces the default policy",
}
_NAME_LINE = re.compile(r"^name:[ \t]*[\"']?([\w.-]+)", re.MULTILINE)
_WORD = re.compile(r"[\w./@+-]+")
_BOUNDARY = re.compile(r"^---[ \t]*$", re.MULTILINE)
"""Delimits the front matter of an agent file, as in `agents.agent_files`."""
DECLINED = "declined"
"""Among approvals: the hash of what the person declined."""
_FILE_KEYS = frozenset({"ca_file"})
"""Settings that name a file of trusted certificates."""
_SHIM_FILES = (".tool-versions", ".volta/hooks.json")
"""Files by which version managers choose a program."""
_BUN_FILES = ("bunfig.toml", ".env")
_SKILL = ("SKILL.md", "scripts/*")
VENDOR_FILES: Mapping[str, tuple[str, ...]] = {
    "claude": (
        ".claude/settings.json",
        ".claude/settings.local.json",
        ".mcp.json",
        *(f".claude/{name}/*" for name in ("hooks", "agents", "commands")),
        *(f".claude/skills/*/{name}" for name in _SKILL),
        *_BUN_FILES,
        *_SHIM_FILES,
    ),
    "codex": (".codex/config.toml", ".codex/hooks.json", ".codex/rules/*", *_SHIM_FILES),
    "opencode": (
        "opencode.json*",
        ".opencode/opencode.json*",
        *(f".opencode/{name}/*" for name in ("plugin", "plugins", "tool", "tools", "agent", "agents", "command", "commands")),
        *_BUN_FILES,
        *_SHIM_FILES,
    ),
    "gemini": (".gemini/settings.json", ".gemini/.env", ".gemini/commands/*", ".env", *_SHIM_FILES),
    "qwen": (".qwen/settings.json", ".qwen/.env", ".qwen/commands/*", ".env", *_SHIM_FILES),
    "auggie": (".augment/*", *_SHIM_FILES),
}
"""Project files by which each coding agent starts programs, without asking if no person is at its terminal."""
MAX_FILES = 1000
MAX_BYTES = 1024 * 1024
MAX_SECONDS = 5.0
LOCK_SECONDS = 10.0
WATCH_SECONDS = 2.0
"""Interval of checks of an open project's declarations."""


class TrustItem(NamedTuple):
    """A file or settings table that needs approval."""

    kind: str
    """agent, command, flow, instructions, policy, model (its settings), setting, tools (of an MCP server), database or owner."""
    name: str
    """`.remit/agents/x.py`, `remit.toml:[agents.x]`, `remit.toml:policy_mode`."""
    digest: str
    effect: str
    """What it would run, send or weaken, in one line."""
    text: str
    covers_files: bool = False
    """Whether its digest also covers other project files, which it runs or relies on."""

    @property
    def agent(self) -> str | None:
        """The agent that a table or a Markdown file declares, from its text."""
        if self.kind != "agent" or self.name.endswith(".py"):
            return None
        if self.name.endswith("]"):
            return self.name.partition("agents.")[2].rstrip("]")
        named = _NAME_LINE.search(self.text)
        return named[1] if named else Path(self.name).stem


class ProjectTrust(NamedTuple):
    """The approvals of a project."""

    root: Path
    settings: Mapping[str, Mapping[str, Any]]
    """The table of remit in each settings file, approved or not."""
    approved: Mapping[str, str] | None
    """Digests by name; None: everything is approved."""
    items: tuple[TrustItem, ...] = ()
    """All items that need approval; not searched if everything is approved."""
    left_out: tuple[TrustItem, ...] = ()
    """Those without approval."""
    is_given: bool = False
    """Approved by the hash in REMIT_TRUST or by the program, not by the user's stored approvals."""
    fault: str = ""
    """Why approvals could not be read."""

    @property
    def is_complete(self) -> bool:
        return not self.left_out

    def allows(self, item: TrustItem) -> bool:
        return self.approved is None or self.approved.get(item.name) == item.digest

    def allows_content(self, path: Path, data: bytes) -> bool:
        """Whether this content of a project file is approved. Pass the bytes that are then used."""
        name = _relative(path, self.root)
        return self.approved is None or self.approved.get(name) == _content_digest(name, data, self.root)

    def allows_setting(self, file: str, key: Sequence[str]) -> bool:
        """Whether a key of a settings file may be used: it is harmless, or its table is approved."""
        name = setting_name(file, key)
        return self.approved is None or all(item.name != name for item in self.left_out)

    @property
    def foreign_database(self) -> DatabaseBinding | None:
        """Set if the database is only read: it was not created here, and no person adopted it."""
        is_left_out = any(item.kind == DATABASE_KIND for item in self.left_out)
        return DatabaseBinding(self.root / FOLDER / DATABASE) if is_left_out else None

    @property
    def notice(self) -> str:
        """One line that names unapproved parts and how to approve them; empty if there are none."""
        if self.is_complete:
            return ""
        why = f" ({self.fault.rstrip('.')}.)" if self.fault else ""
        return f"Not approved: {summary_of(self.left_out)} of this project.{why} {ADVICE}"

    @property
    def environment(self) -> dict[str, str]:
        """For agents in their own processes: they see the same approvals as this process."""
        if self.approved is None:
            return {VARIABLE: "1"}
        return {VARIABLE: hash_of(self.items)} if self.is_given and self.approved else {}

    @property
    def is_declined(self) -> bool:
        """Whether the person declined exactly this."""
        return self.approved is not None and self.approved.get(DECLINED) == hash_of(self.left_out, without=(DATABASE_KIND,))

    @property
    def allows_recovery(self) -> bool:
        """Whether work of dead processes may be resumed: while a person has not decided, it may need unapproved parts."""
        return self.is_complete or self.is_declined

    def approved_tools(self, server: str) -> dict[str, dict[str, Any]]:
        """The approved tools of an MCP server, by name."""
        text = approved_text((self.approved or {}).get(tools_name(server), ""))
        return {} if text is None else tools_in(text)

    def refused(self, what: str) -> Refused:
        """The error of a call that needs an unapproved part."""
        return Refused(f"{what} is not approved.", code=CODE, advice=f"{ADVICE} (in {self.root})")


_WHOLE = {
    "instructions": "instructions for the assistant",
    "policy": "the policy",
    "model": "model settings",
    "setting": "settings",
    TOOLS: "tools of MCP servers",
    "database": "the database",
}


def summary_of(items: Iterable[TrustItem]) -> str:
    """`2 agents, 1 command, model settings`"""
    kinds = [item.kind for item in items]
    counted = [(kind, kinds.count(kind)) for kind in ("agent", "command", "flow") if kind in kinds]
    words = [f"{number} {kind}{'s' if number > 1 else ''}" for kind, number in counted]
    words += [word for kind, word in _WHOLE.items() if kind in kinds]
    return ", ".join(words)


def hash_of(items: Iterable[TrustItem], without: Sequence[str] = (DATABASE_KIND, TOOLS)) -> str:
    """The overall hash, for REMIT_TRUST and `Remit.open(trust=…)`. Databases and server tools are excluded: they are not project files that
    could be reviewed elsewhere."""
    return digest_of(json.dumps(sorted((item.name, item.digest) for item in items if item.kind not in without)).encode())


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def load_trust(root: Path | str, trust: bool | str | None = None) -> ProjectTrust:
    """The approvals of the project at `root`. `trust`: True approves everything, a hash the content with that hash, False nothing; None
    uses REMIT_TRUST and the user's approvals, "" only the latter."""
    root = Path(root).resolve()
    check_place(root, trust)
    settings = {file: _table(root / file, keys) for file, keys in SETTINGS_FILES.items()}
    given = os.environ.get(VARIABLE, "") if trust is None else trust
    if given is True or given == "1":
        return ProjectTrust(root=root, settings=settings, approved=None)
    items = tuple(_items(root, settings))
    approved: dict[str, str] = {}
    is_given, fault = given is False or given == hash_of(items), ""
    if given is not False:
        try:
            approved = approvals_of(root)
        except RemitError as error:
            fault = "" if is_given else str(error)
        else:
            fault = f"{VARIABLE if trust is None else 'trust'} is the hash of other content" if given and not is_given else ""
        if is_given:  # a hash does not cover the database: a person adopts it
            approved = {item.name: item.digest for item in items if item.kind != DATABASE_KIND or approved.get(item.name) == item.digest}
    left_out = tuple(item for item in items if approved.get(item.name) != item.digest)
    if POLICY in approved and all(item.name != POLICY for item in items):
        left_out += (TrustItem(kind="policy", name=POLICY, digest="", effect="was removed; its approved rules stay in force", text=""),)
    return ProjectTrust(root=root, settings=settings, approved=approved, items=items, left_out=left_out, is_given=is_given, fault=fault)


# ---- what needs approval


def items_of(root: Path) -> tuple[TrustItem, ...]:
    """Everything in the project that needs approval, approved or not."""
    root = root.resolve()
    return tuple(_items(root, {file: _table(root / file, keys) for file, keys in SETTINGS_FILES.items()}))


def _items(root: Path, settings: Mapping[str, Mapping[str, Any]]) -> Iterator[TrustItem]:
    for file, table in settings.items():
        yield from _setting_items(file, table, root)
        yield from _tool_items(table, root)
    end = time.monotonic() + MAX_SECONDS
    for folder, (kind, endings) in FOLDERS.items():
        for name in _files(root, folder, endings, end):
            if (data := _content(f"{root}/{name}", root)) is not None:
                yield _file_item(kind, name, data, root)
    for name, kind in FILES.items():
        if (data := _content(f"{root}/{name}", root)) is not None:
            yield _file_item(kind, name, data, root)
    if (item := database_item(root)) is not None:
        yield item


def database_item(root: Path) -> TrustItem | None:
    """The project's database if it was not created here; approving it adopts its current state."""
    binding = DatabaseBinding(root / FOLDER / DATABASE)
    if not binding.has_content or binding.token() is not None:
        return None
    digest = digest_of(binding.identity().encode())
    effect = "was not made here, or was moved, restored or made by an older remit: what is unfinished in it (`remit history`) would run"
    return TrustItem(kind=DATABASE_KIND, name=f"{FOLDER}/{DATABASE}", digest=digest, effect=effect, text="")


def owner_item(root: Path) -> TrustItem | None:
    """The owner of the project's files if that is another user; approving it trusts that user."""
    fault = owner_fault(root)
    return TrustItem(kind=OWNER, name=OWNER, digest=digest_of(fault.encode()), effect=fault, text=fault) if fault else None


def check_place(root: Path, trust: bool | str | None = None) -> None:
    """Raise `Refused` for a project whose `.remit` leads out of it, or whose files another user could have written, unless approved. An
    agent's process leaves the owner check to the process that runs its tree."""
    must_stay_inside(root)
    given = os.environ.get(VARIABLE, "") if trust is None else trust
    item = None if given is True or given == "1" or CALLER in os.environ else owner_item(root)
    if item is not None:
        with contextlib.suppress(RemitError):  # approvals that cannot be read approve nothing
            if approvals_of(root).get(OWNER) == item.digest:
                return
        raise Refused(
            f"{item.effect}, so nothing of the project {root} is used.",
            code=CODE,
            advice="If you trust everyone who can write there: remit trust --owner. Otherwise work in a folder of your own: --root FOLDER",
        )


def _setting_items(file: str, table: Mapping[str, Any], root: Path) -> Iterator[TrustItem]:
    groups: dict[str, dict[tuple[str, ...], Any]] = {}
    for key, value in leaves(table):
        groups.setdefault(setting_name(file, key), {})[key] = value
    for name, found in groups.items():
        if all(is_harmless(key, value) for key, value in found.items()):
            continue
        first = next(iter(found))
        kind = {"agents": "agent", "models": "model", "model": "model"}.get(first[0], "setting")
        values = {".".join(key[1:] if len(key) < 3 else key[2:]) or key[0]: value for key, value in found.items()}
        # Shown under a secret's name too: which key is sent, by its name; and what may start a program, like GIT_ASKPASS.
        named = {key: one for key, one in values.items() if key.endswith("_variable") or any(sign in str(one) for sign in "/ $`;|&")}
        shown = redact_parameters(values) | named
        lines = [f"{key} = {json.dumps(value, default=str, ensure_ascii=False)}" for key, value in shown.items()]
        references = references_of(
            (word for key, value in found.items() for word in _words(key, value)),
            root,
            [value for key, value in found.items() if key[-1] == "folder" and isinstance(value, str)],
        )
        lines += [f"{path} (sha256 {digest[:16]}…)" for path, digest in references.items()]
        canonical = json.dumps(
            [sorted((key, json.dumps(value, default=str, sort_keys=True)) for key, value in found.items()), sorted(references.items())]
        )
        lines = [_without_secrets(line) if first[0] == "agents" else redact_text(line) for line in lines]
        effect = one_line(f"{'declares an agent' if first[0] == 'agents' else 'sets'}: {', '.join(lines)}")
        text, digest = "\n".join(lines) + "\n", digest_of(canonical.encode())
        yield TrustItem(kind=kind, name=name, digest=digest, effect=effect, text=text, covers_files=bool(references))


def tools_name(server: str) -> str:
    """Name of the item with the tools of an MCP server."""
    return f"mcp:{server}"


def _tool_items(table: Mapping[str, Any], root: Path) -> Iterator[TrustItem]:
    """The last known tools of each MCP server in the settings. One that was never asked has none."""
    agents = table.get("agents")
    for name, agent in agents.items() if isinstance(agents, Mapping) else ():
        seen = seen_tools(server_key(root, name, agent)) if is_server(agent) else None
        if seen is not None and seen.text:
            names = list(tools_in(seen.text))
            effect = one_line(f"offers {len(names)} tools, each of them an agent: {', '.join(names)}")
            yield TrustItem(kind=TOOLS, name=tools_name(name), digest=digest_of(seen.text.encode()), effect=effect, text=seen.text)


def _without_secrets(line: str) -> str:
    """Anything that a shell would run is shown: `https://x:$(…)@host` looks like a password."""
    return line if any(sign in line for sign in "$`;|&") else redact_text(line)


def _words(key: Sequence[str], value: Any) -> list[str]:
    """Words of a setting that may be project files which it runs or relies on."""
    if key[0] == "agents" and key[-1] in ("command", "kind", "options"):
        try:
            words = shlex.split(value) if isinstance(value, str) else [word for word in value if isinstance(word, str)]
        except (ValueError, TypeError):
            return []
        return [*words, *(word.partition("=")[2] for word in words if "=" in word)]
    return [value] if key[-1] in _FILE_KEYS and isinstance(value, str) else []


def references_of(words: Iterable[str], root: Path, folders: Iterable[str] = ()) -> dict[str, str]:
    """Words that are project files, with their digests: approving `command = "./build.sh"` approves the script, and approving a coding
    agent approves its hooks and plug-ins in the project. `folders`: where else the agent may work."""
    found: dict[str, str] = {}
    words = dict.fromkeys(words)
    names = [os.path.basename(word) for word in words]
    patterns = [pattern for vendor, files in VENDOR_FILES.items() if any(vendor in name for name in names) for pattern in files]
    for place in dict.fromkeys((str(root), *(os.path.normpath(os.path.join(root, folder)) for folder in folders))):
        named = (name for pattern in patterns for name in sorted(glob(pattern, root_dir=place, include_hidden=True)))
        for path in (os.path.join(place, word) for word in (*words, *named)):
            with contextlib.suppress(OSError, ValueError), _open_inside(path, root) as opened:  # most words are not files
                found[os.path.normpath(path).removeprefix(f"{root}/")] = hashlib.file_digest(opened, "sha256").hexdigest()
    return found


def setting_name(file: str, key: Sequence[str]) -> str:
    """The item of a key: `remit.toml:[agents.x]`, `remit.toml:[budget].cost`, `remit.toml:model`."""
    whole = (*SETTINGS_FILES[file], *key[:2])
    if len(key) > 2 or key[0] == "agents":
        return f"{file}:[{'.'.join(whole)}]"
    table = ".".join(whole[:-1])
    return f"{file}:[{table}].{whole[-1]}" if table else f"{file}:{whole[-1]}"


def leaves(value: Any, key: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """The leaf keys of a table, with their values."""
    if isinstance(value, Mapping) and (value or key[:1] != ("agents",)):  # an agent may be declared by its name alone
        return [leaf for name, inner in value.items() for leaf in leaves(inner, (*key, str(name)))]
    return [(key, value)]


def _content_digest(name: str, data: bytes, root: Path) -> str:
    """Digest of a file, and of the project files that an agent file with a command or a coding agent's kind runs."""
    head = _head(name, data)
    words = set(_WORD.findall(head))
    folders = [word for word in sorted(words) if not os.path.isabs(word) and (root / word).is_dir()] if "folder" in words else ()
    if not words & {"command", "options"} and "\\" not in head:  # in YAML, a key can be written with escapes
        words &= VENDOR_FILES.keys() if "kind" in words else set()
    references = references_of(sorted(words), root, folders)
    return digest_of(data + json.dumps(references).encode() if references else data)


def _head(name: str, data: bytes) -> str:
    """The front matter of an agent file that may declare a command: other tools' folders cannot."""
    if not name.startswith(".remit/agents/") or not name.endswith(".md"):
        return ""
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return "".join(_BOUNDARY.split(text, 2)[:2])


def _file_item(kind: str, name: str, data: bytes, root: Path) -> TrustItem:
    effect = EFFECTS.get(kind) or ("runs Python code" if name.endswith(".py") else "instructs an agent")
    if head := one_line(_without_secrets(_head(name, data))):
        effect = f"declares an agent: {head}"
    effect, text = f"{effect} ({len(data):,} bytes)", data.decode("utf-8", "replace")
    digest = _content_digest(name, data, root)
    return TrustItem(kind=kind, name=name, digest=digest, effect=effect, text=text, covers_files=digest != digest_of(data))


def _relative(path: Path, root: Path) -> str:
    """`root` is resolved; `path` may use another spelling of it."""
    name = str(path) if str(path).startswith(f"{root}/") else f"{os.path.realpath(path.parent)}/{path.name}"
    return name.removeprefix(f"{root}/")


def _files(root: Path, folder: str, endings: tuple[str, ...], end: float) -> Iterator[str]:
    """Their paths in the project, by name, as many as are ever loaded: a clone may contain a whole disk."""
    found, is_deep = 0, not folder.startswith(".remit/")
    for place, below, names in walk(f"{root}/{folder}"):
        if time.monotonic() > end:
            return
        below[:] = below if is_deep else []
        for name in names:
            if name.endswith(endings) and not name.startswith(("_", ".")):
                found += 1
                if found > MAX_FILES:
                    return
                yield f"{place}/{name}".removeprefix(f"{root}/")


def _content(path: str | Path, root: Path) -> bytes | None:
    """None for anything that is not loaded: a link out of the project, a pipe, a file that is too large or unreadable."""
    try:
        with _open_inside(path, root) as opened:
            size = os.fstat(opened.fileno()).st_size  # requesting the maximum would allocate memory for it
            data = opened.read(min(size, MAX_BYTES) + 1)
    except (OSError, ValueError):
        return None
    return data if len(data) <= MAX_BYTES else None


def _open_inside(path: str | Path, root: Path) -> BufferedReader:
    """A regular project file, also through a link inside it. Raises `OSError` or `ValueError`."""
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC)  # opens nothing yet: opening a device can have side effects
    try:
        if not os.readlink(f"/proc/self/fd/{handle}").startswith(f"{root}/") or not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError(path)
        return open(f"/proc/self/fd/{handle}", "rb")
    finally:
        os.close(handle)


def _table(path: Path, keys: Sequence[str]) -> Mapping[str, Any]:
    """The table of remit in a settings file."""
    try:
        with os.fdopen(open_regular(real_path(path)), "rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise Unavailable(f"Cannot read {path}: {error.strerror or error}.", advice="Check its permissions.") from error
    if len(data) > MAX_BYTES:
        raise Misused(f"{path} is larger than {MAX_BYTES // 1024} KiB.", advice="Make it shorter; nothing was read from it.")
    return _table_in(data, path, keys)


def _table_in(data: bytes, path: Path, keys: Sequence[str]) -> Mapping[str, Any]:
    import tomllib  # most commands read no settings file

    try:
        found: Any = tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misused(f"{path} is not valid TOML: {error}.", advice="Correct it; nothing was read from it.") from None
    for key in keys:
        found = found.get(key, {}) if isinstance(found, dict) else {}
    if not isinstance(found, dict):
        raise Misused(f"{path.name}:[tool].remit must be a table of keys, not {found!r}.", advice="Write [tool.remit].")
    return with_adopted(found, path.parent)


class DeclarationWatch:
    """Detects changed declarations of an open project, which are loaded only when it is opened again."""

    def __init__(self, trust: ProjectTrust) -> None:
        self._root = trust.root
        self._known = None if trust.approved is None else _declared(trust.items)
        self._stamps: Mapping[str, tuple[int, ...] | None] = {}
        self.due_at = math.inf if self._known is None else time.monotonic() + WATCH_SECONDS
        """When `notice` checks again: compared before each delegation, so that most do not call it."""

    def notice(self) -> str:
        """One line for a change that was not reported yet; usually empty. Checks only from time to time."""
        if self._known is None or time.monotonic() < self.due_at:
            return ""
        self.due_at = time.monotonic() + WATCH_SECONDS
        files = (*SETTINGS_FILES, *FOLDERS, *(name for name in self._known if ":" not in name))
        stamps = {file: stamp_of(self._root / file) for file in files}
        if stamps == self._stamps:
            return ""
        self._stamps = stamps
        try:
            items, approved = items_of(self._root), approvals_of(self._root)
        except RemitError:
            return ""  # reported when it is opened again
        before, self._known = self._known, _declared(items)
        changed = sorted({*before.items()} ^ {*self._known.items()})
        if not changed:
            return ""
        names = one_line(", ".join(dict.fromkeys(name for name, _ in changed)), 300)
        is_approved = all(approved.get(name) == digest for name, digest in self._known.items() if before.get(name) != digest)
        advice = "Open it again to use the change." if is_approved else f"It is not approved. {ADVICE}"
        return f"Changed while this project is open: {names}. The content read before stays in force. {advice}"


def _declared(items: Iterable[TrustItem]) -> dict[str, str]:
    """Without the policy, which reports its own changes, and items that are not files."""
    return {item.name: item.digest for item in items if item.kind not in (DATABASE_KIND, TOOLS, "policy")}


# ---- approvals


def approvals_of(root: Path) -> dict[str, str]:
    """Current approvals: digests by name. Raises `RemitError` if they are unreadable, or agents could write them."""
    folder = Path(os.path.realpath(state_folder()))
    if folder.is_relative_to(root.resolve()) and protection_of(str(folder.relative_to(root.resolve()))) is None:
        raise Refused(
            f"{folder} is inside the project, where agents could write approvals, so nothing is approved.",
            code=CODE,
            advice="Set XDG_STATE_HOME to a folder outside.",
        )
    return dict(_read_approvals().get(str(root.resolve()), {}))


def approvals_stamp() -> tuple[int, ...] | None:
    """Changes whenever something is approved."""
    try:
        return stamp_of(state_folder() / "trust.json")
    except RemitError:
        return None


def _read_approvals() -> dict[str, dict[str, str]]:
    """By project: name → digest. Raises `RemitError` for a damaged file or one that is not private: it approves nothing."""
    path = state_folder() / "trust.json"
    data = read_private(path)
    if data is None:
        return {}
    try:
        projects: Any = json.loads(data)["projects"]
        if not all(isinstance(digest, str) for approved in projects.values() for digest in approved.values()):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unavailable(
            f"{path} is damaged, so nothing is approved.", code="STORE_UNAVAILABLE", advice=f"Move it away: mv {path} {path}.damaged"
        ) from None
    return dict(projects)


def _change_approvals(root: Path, items: Iterable[TrustItem], *, keep: bool) -> None:
    if CALLER in os.environ:
        raise Refused("An agent cannot approve files of a project.", code=CODE, advice=f"A person can. {ADVICE}")
    folder = private_folder(state_folder())
    with file_lock(folder / "trust.lock", timeout=LOCK_SECONDS):
        projects = _read_approvals()
        name = str(root.resolve())
        approved = {**(projects.pop(name, {}) if keep else {}), **{item.name: item.digest for item in items}}
        if not keep:
            projects.pop(name, None)
        if approved := {name: digest for name, digest in approved.items() if digest}:  # empty: the removal of a file was approved
            projects[name] = approved
        texts = private_folder(folder / "approved")
        for item in (item for item in items if item.digest):
            write_private(texts / item.digest, item.text.encode("utf-8", "replace"), fsync=False)
        write_private(folder / "trust.json", json.dumps({"version": 1, "projects": projects}, indent=1).encode())
        used = {digest for approved in projects.values() for digest in approved.values()}
        for text in texts.iterdir():
            if text.name not in used:
                text.unlink(missing_ok=True)


def approve(root: Path, items: Iterable[TrustItem]) -> None:
    """Approve these items with their current content. Earlier approvals of the same names are replaced; others stay."""
    _change_approvals(root, tuple(items), keep=True)


def approve_written(root: Path, path: Path, before: bytes | None, after: bytes) -> None:
    """Approve what remit itself changed in a file on a person's command, if all of the file was approved before, or it did not exist
    (`before` None). Otherwise, or if an agent gave the command, the file waits for `remit trust`; so does an item that would run other
    project files, like a coding agent its hooks: the person has not seen them."""
    with contextlib.suppress(RemitError):
        root = root.resolve()
        approved = approvals_of(root)
        if all(approved.get(item.name) == item.digest for item in _items_in(root, path, before)):
            written = [item for item in _items_in(root, path, after) if approved.get(item.name) != item.digest]
            approve(root, [item for item in written if not item.covers_files])


def create_approved(root: Path, path: Path, data: bytes) -> None:
    """Create a file on a person's command and approve it. Raises `FileExistsError`; `Refused` if a link leads out of the project;
    `Unavailable` if it cannot be written."""
    from remit.system.edits import name_new

    try:
        folder = resolve_inside(root, path.parent)
        folder.mkdir(parents=True, exist_ok=True)
        beside = write_beside(folder, f".{path.name}.new", data)
        try:
            name_new(beside, folder / path.name)
        except OSError:
            beside.unlink()
            raise
    except FileExistsError:
        raise
    except OSError as error:
        raise Unavailable(f"{_relative(path, root)} cannot be written: {error.strerror or error}.", advice="Check the folder.") from None
    approve_written(root, path, None, data)


def _items_in(root: Path, path: Path, data: bytes | None) -> tuple[TrustItem, ...]:
    """Items that need approval in a file with this content."""
    name = _relative(path, root)
    if data is None:
        return ()
    if name in SETTINGS_FILES:
        return tuple(_setting_items(name, _table_in(data, path, SETTINGS_FILES[name]), root))
    kind = next((kind for folder, (kind, _) in FOLDERS.items() if name.startswith(f"{folder}/")), FILES.get(name))
    return () if kind is None else (_file_item(kind, name, data, root),)


def flow_item(root: Path, path: Path, data: bytes) -> TrustItem:
    """For a flow that a person named by its path: anywhere in the project."""
    return _file_item("flow", _relative(path, root), data, root)


def decline(root: Path, items: Iterable[TrustItem]) -> None:
    """Remember that these were declined, so that the question is not repeated."""
    declined = TrustItem(kind="", name=DECLINED, digest=hash_of(items, without=(DATABASE_KIND,)), effect="", text="")
    _change_approvals(root, (declined,), keep=True)


def forget(root: Path) -> None:
    """Approve nothing of the project."""
    _change_approvals(root, (), keep=False)


def approved_text(item_digest: str) -> str | None:
    """The approved text of this digest, for a diff; None if it is not kept."""
    try:
        data = read_private(state_folder() / "approved" / item_digest)
    except RemitError:
        return None
    return None if data is None else data.decode("utf-8", "replace")
