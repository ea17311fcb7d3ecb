"""The project that a command works on: its root, settings, agents and history, and the output of the command.

Reading a project changes nothing: no folder is created, nothing is recovered. Commands that run or stop work use `Project.open`."""

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.cli.exits import Exit
from remit.cli.render import say, say_aside, say_json
from remit.core.errors import Misused, Refused, Unavailable
from remit.core.ids import CALLER, decode
from remit.core.text import list_some

if TYPE_CHECKING:
    from remit.agents.directory import Directory
    from remit.app import Remit
    from remit.core.ports import Store
    from remit.core.record import Record
    from remit.core.settings import Settings
    from remit.models.client import Models
    from remit.system.trust import ProjectTrust

SEARCHED = 5_000
"""Number of newest delegations searched for the end of a session id; older ones need the whole id."""
NOTHING_YET = "Nothing has been delegated here yet. Start with `remit demo`, or `remit delegate AGENT name=value`."
INSTALL_MCP = "pip install 'remit[mcp]'"
NO_MCP = f"The package mcp is not installed. Coding agents need it to delegate: {INSTALL_MCP}"


class Project:
    """A project. `root` None: searched from the working directory."""

    def __init__(self, root: Path | None = None, *, as_json: bool = False, trust: bool = False, asks: bool = False) -> None:
        """`trust`: approve all files for this command. `asks`: otherwise ask a person at the terminal for approval."""
        self.root = find_root(root)
        self.is_named = root is not None
        self.as_json = as_json
        self.is_trusted = trust
        self._asks = asks

    @cached_property
    def folder(self) -> Path:
        """The folder `.remit`, which may not exist."""
        from remit.system.trust import check_place

        check_place(self.root, self.is_trusted or None)
        folder = self.root / ".remit"
        if folder.exists() and not folder.is_dir():
            raise Unavailable(
                f"{folder} is a file; remit needs a folder of that name.",
                code="STORE_UNAVAILABLE",
                advice=f"Move it: mv {folder} {folder}.old",
            )
        return folder

    @cached_property
    def trust(self) -> "ProjectTrust":
        """The approvals of the project. Unapproved parts are reported once, in one line on stderr, or asked for."""
        from remit.system.trust import load_trust

        trust = load_trust(self.root, self.is_trusted or None)
        if trust.is_complete or CALLER in os.environ:  # in an agent's process the owner of its tree decides
            return trust
        if self._asks:
            from remit.cli.trust import ask_for_approval

            trust = ask_for_approval(self, trust)
        if notice := trust.notice:
            say_aside(notice)
        return trust

    @cached_property
    def settings(self) -> "Settings":
        from remit.system.settings_files import load_settings

        return load_settings(self.root, trust=self.trust)

    @cached_property
    def directory(self) -> "Directory":
        """The declared agents of the project; none is started."""
        from remit.agents.directory import Directory
        from remit.builtin import describe, load_project, offer_built_in

        root, settings, trust = self.folder.parent, self.settings, self.trust
        directory = Directory(lambda agent: agent)
        load_project(directory, root, settings, trust, describe(root, settings, trust))
        offer_built_in(directory, settings, self._models, None)
        return directory

    def describe_servers(self, trust: "ProjectTrust") -> dict[str, str]:
        """Start approved MCP servers with unknown tools, so that a person can approve the tools. Returns the failures by server name."""
        from remit.agents.mcp.tool_agents import describe_unknown
        from remit.system.settings_files import load_settings

        return describe_unknown(self.root, load_settings(self.root, trust=trust), trust, asked=True)

    def _models(self) -> "Models":
        from remit.models.client import Models

        return Models(self.settings)

    @contextmanager
    def history(self) -> Iterator["Store | None"]:
        """The recorded delegations, read only; None if nothing was ever delegated."""
        if self._shares_record:
            from remit.stores import open_postgres

            shared = open_postgres(self.settings)
            try:
                yield shared
            finally:
                shared.close()
            return
        path = self.folder / "remit.db"
        if not path.exists():
            yield None
            return
        from remit.stores.sqlite import ReadOnlyStore, open_read_only
        from remit.system.ownership import DatabaseBinding

        store = open_read_only(path) if DatabaseBinding(path).token() else ReadOnlyStore(path, is_foreign=True)
        try:
            yield store
        finally:
            store.close()

    @property
    def has_record(self) -> bool:
        return self._shares_record or (self.folder / "remit.db").exists()

    @property
    def _shares_record(self) -> bool:
        """Whether the record is in PostgreSQL. Unreadable settings do not prevent reading a record in a file."""
        try:
            return self.settings.store.url is not None
        except Misused:
            return False

    @contextmanager
    def store(self) -> Iterator["Store"]:
        """Like `history`, but raises if nothing was delegated."""
        with self.history() as store:
            yield need_store(store)

    def open(self, **options: Any) -> "Remit":
        """Open the project to run something. The person at the terminal answers approval requests of the policy."""
        from remit.app import Remit

        if "approver" not in options and sys.stdin is not None and sys.stdin.isatty():
            from remit.cli.approval import person_here

            options["approver"] = person_here()
        return Remit.open(self.root, **{"recover": False, "trust": self.trust, **options})

    def answer(self, document: Any, text: Callable[[], object] | str | None = None, code: Exit = Exit.OK) -> Exit:
        """Print the document with `--json`, else the text; without one, the document as fields and tables. An expensive document is a
        function."""
        if self.as_json:
            say_json(document() if callable(document) else document)
        elif callable(text):
            text()
        elif text is not None:
            say(text)
        else:
            from remit.cli.results import say_document

            say_document(document() if callable(document) else document)
        return code

    def announce(self, event: str, fields: dict[str, Any], text: str) -> None:
        """Print one of several events: a document with `--json`, else a line on stderr."""
        say_json({"event": event, **fields}) if self.as_json else say_aside(text)

    def inside(self, place: str) -> str:
        """The path of a project file relative to the root."""
        return place.removeprefix(f"{self.root}/")

    def why_not_loaded(self, name: str, directory: "Directory | None" = None) -> str:
        """The fault of an agent that is declared but not loaded; empty if it is not declared."""
        directory = directory or self.directory
        if directory.find(name) is not None:
            return ""
        for problem in directory.problems:
            place, _, fault = problem.partition(": ")
            file, _, table = place.partition(":[")
            if (table and table.endswith(f"agents.{name}]")) or (not table and Path(file.partition(" (line ")[0]).stem == name):
                return f"{name} is declared in {self.inside(file)} but was not loaded: {fault.rstrip('.')}."
        return ""


def find_root(given: Path | None) -> Path:
    """The given folder; in an agent's process the root of its tree; else the nearest parent that looks like a project, else the working
    directory."""
    if given is not None:
        if not given.is_dir():
            raise Misused(f"There is no folder {given}.", advice="--root takes the folder of a project.")
        return given.resolve()
    if (attached := _root_of_tree()) is not None:
        return attached
    try:
        here = Path.cwd()
    except FileNotFoundError:
        raise Unavailable("The working directory was deleted.", advice="Change to another one, or use --root.") from None
    return next((folder for folder in (here, *here.parents) if _is_project(folder)), here)


def _is_project(folder: Path) -> bool:
    """Whether it looks like a project. An empty `.git` does not count: sandboxes leave such folders behind, e.g. in /tmp."""
    git = folder / ".git"
    return (folder / ".remit").exists() or (folder / "remit.toml").exists() or git.is_file() or (git / "HEAD").exists()


def _root_of_tree() -> Path | None:
    """The root of the delegation tree that this process belongs to, for agents in a worktree or a copy."""
    try:
        address = Path(decode(os.environ[CALLER]).address)
    except (KeyError, Refused):
        return None
    root = address.parent.parent.parent
    return root if (root / ".remit").is_dir() else None


def need_store(store: "Store | None") -> "Store":
    if store is None:
        raise Misused("The delegation does not exist: nothing has been delegated here yet.", advice="Start with `remit demo`.")
    return store


def find_session(store: "Store", name: str) -> "Record":
    """Find a session by its id, by the beginning or end of it, or by `last`: the root of the newest delegation."""
    from remit.core.record import HistoryQuery

    if (record := store.get(name)) is not None:
        return record
    newest = store.history(HistoryQuery(limit=SEARCHED))
    if name == "last" and newest:
        return store.get(newest[0].root_id) or newest[0]
    named = [one for one in newest if name and (one.session_id.startswith(name) or one.session_id.endswith(name))]
    if len(named) == 1:
        return named[0]
    if not named:
        raise Misused(f"There is no delegation {name}.", code="INVALID_TARGET", advice="`remit history` lists them; `last` is the newest.")
    shown = list_some([f"{one.session_id} ({one.agent})" for one in named], 5)
    raise Misused(f"{name} could be {shown}.", code="INVALID_TARGET", advice="Write more characters of the id.")


def has_mcp() -> bool:
    return importlib.util.find_spec("mcp") is not None and importlib.util.find_spec("mcp_types") is not None
