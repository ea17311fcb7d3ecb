"""The project that a command works on: where it is, its settings, agents and history, and how the command answers.

Reading a project changes nothing: no folder is made, nothing is recovered. Commands that run or stop something use `Project.open`.
"""

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from remit.cli.exits import Exit
from remit.cli.render import say, say_aside, say_json
from remit.core.errors import Misused, Refused, Unavailable
from remit.core.ids import CALLER, decode

if TYPE_CHECKING:
    from remit.agents.directory import Directory
    from remit.app import Remit
    from remit.core.ports import Store
    from remit.core.record import HistoryQuery, Record
    from remit.core.settings import Settings
    from remit.models.client import Models
    from remit.system.trust import ProjectTrust

SEARCHED = 5_000
"""Ends of session ids are looked up among this many newest delegations; older ones need the whole id."""
NOTHING_YET = "Nothing has been delegated here yet. Start with `remit demo`, or `remit delegate AGENT name=value`."
INSTALL_MCP = "pip install 'remit[mcp]'"
NO_MCP = f"The package mcp is not installed. Coding agents need it to delegate: {INSTALL_MCP}"


class Project:
    """`root` None: found from the working directory."""

    def __init__(self, root: Path | None = None, *, as_json: bool = False, trust: bool = False, asks: bool = False) -> None:
        """`trust`: all of its files are approved for this command; `asks`: otherwise a person at the terminal is asked for approval."""
        self.root = find_root(root)
        self.is_named = root is not None
        self.as_json = as_json
        self.is_trusted = trust
        self._asks = asks

    @cached_property
    def folder(self) -> Path:
        """`.remit`, which need not exist."""
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
        """What is approved of the project. What is not is said once, in one line on stderr, or asked for."""
        from remit.system.trust import load_trust

        trust = load_trust(self.root, self.is_trusted or None)
        if trust.is_complete or CALLER in os.environ:  # of an agent's process: the owner of its tree decides
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
        """The agents of the project, declared only: nothing is started to run them."""
        from remit.agents.directory import Directory
        from remit.agents.python_files import describe_project
        from remit.builtin import offer_built_in
        from remit.builtin.assistant import offer_assistant

        directory = Directory(lambda agent: agent)
        described = describe_project(self.folder, self.trust.allows_content, self.settings.describe_seconds)
        directory.load_files(described)
        directory.load_definitions(self.root, self.settings, self.trust)
        directory.load_entry_points()
        directory.list_unapproved(described, self.trust)
        offer_built_in(directory, self.settings, self._models)
        offer_assistant(directory, self.settings, self._models, None)
        return directory

    def _models(self) -> "Models":
        from remit.models.client import Models

        return Models(self.settings)

    @property
    def routed_settings(self) -> "Settings":
        """The settings, with routing rules for agents that name the commands they accept."""
        from remit.agents.routing import with_agents

        return replace(self.settings, routing=with_agents(self.settings.routing, self.directory.routed_specs()))

    @contextmanager
    def history(self) -> Iterator["Store | None"]:
        """The recorded delegations, read only; None when nothing was ever delegated."""
        path = self.folder / "remit.db"
        if not path.exists():
            yield None
            return
        from remit.stores.sqlite import ForeignStore, open_read_only
        from remit.system.ownership import DatabaseBinding

        store = open_read_only(path) if DatabaseBinding(path).token() else ForeignStore(path)
        try:
            yield store
        finally:
            store.close()

    @contextmanager
    def store(self) -> Iterator["Store"]:
        """The same for a command that names a delegation; raises where there are none."""
        with self.history() as store:
            yield need_store(store)

    def open(self, **options: Any) -> "Remit":
        """The project opened to run something. The person at the terminal answers what the policy asks."""
        from remit.app import Remit
        from remit.cli.approval import person_here

        return Remit.open(self.root, **{"recover": False, "approver": person_here(), "trust": self.trust, **options})

    def answer(self, document: Any, text: Callable[[], object] | str, code: Exit = Exit.OK) -> Exit:
        """The document with `--json`, else the text. A document that is expensive to make is passed as a function."""
        if self.as_json:
            say_json(document() if callable(document) else document)
        elif callable(text):
            text()
        else:
            say(text)
        return code

    def inside(self, place: str) -> str:
        """A file of the project by its path from the root."""
        return place.removeprefix(f"{self.root}/")

    def why_not_loaded(self, name: str, directory: "Directory | None" = None) -> str:
        """What is wrong with an agent that is declared but faulty; empty when it is not declared."""
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
    """The folder asked for; in an agent's process the root of its tree; else the nearest folder upwards that looks like a project, else
    the working directory."""
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
    """An empty `.git` does not count: sandboxes leave such folders behind, in /tmp for example."""
    git = folder / ".git"
    return (folder / ".remit").exists() or (folder / "remit.toml").exists() or git.is_file() or (git / "HEAD").exists()


def _root_of_tree() -> Path | None:
    """Of the delegation this process belongs to: an agent in a worktree or a copy finds its own tree there."""
    try:
        address = Path(decode(os.environ[CALLER]).address)
    except (KeyError, Refused):
        return None
    root = address.parent.parent.parent
    return root if (root / ".remit").is_dir() else None


def need_store(store: "Store | None") -> "Store":
    if store is None:
        raise Misused("There is no such delegation: nothing has been delegated here yet.", advice="Start with `remit demo`.")
    return store


def find_session(store: "Store", name: str) -> "Record":
    """By its id, by the beginning or end of it, or by `last`: the root of the newest delegation."""
    if (record := store.get(name)) is not None:
        return record
    if name == "last" and (newest := store.history(_query("", 1))):
        return store.get(newest[0].root_id) or newest[0]
    named = [one for one in store.history(_query(name)) if name and (one.session_id.startswith(name) or one.session_id.endswith(name))]
    if len(named) == 1:
        return named[0]
    if not named:
        raise Misused(f"There is no delegation {name}.", code="INVALID_TARGET", advice="`remit history` lists them; `last` is the newest.")
    shown = ", ".join(f"{one.session_id} ({one.agent})" for one in named[:5])
    more = f" and {len(named) - 5} more" if len(named) > 5 else ""
    raise Misused(f"{name} could be {shown}{more}.", code="INVALID_TARGET", advice="Write more of it.")


def _query(name: str, limit: int = SEARCHED) -> "HistoryQuery":
    """An id begins with the second in which the delegation was created, so a beginning limits the search in time."""
    from remit.core.record import HistoryQuery

    digits = name.removeprefix("sess_").partition("_")[0]
    if not name.startswith("sess_") or not digits.isdigit() or not 4 <= len(digits) <= 10:
        return HistoryQuery(limit=limit)
    width = 10 ** (10 - len(digits))
    first = int(digits) * width
    return HistoryQuery(since=first - 2.0, until=first + width + 2.0, limit=limit)


def has_mcp() -> bool:
    return importlib.util.find_spec("mcp") is not None and importlib.util.find_spec("mcp_types") is not None
