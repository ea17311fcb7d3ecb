"""The seam between the command line and a project on disk: where its root is, its record read without opening it, sessions by name.

Reading commands come through here and leave no trace: no folder is made, nothing is recovered, nobody is enrolled. Commands that
run or end something open `remit.app.Remit` instead.
"""

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from remit.core.caller_token import CALLER, decode
from remit.core.errors import Misused, Refused, Unavailable
from remit.core.ports import Store
from remit.core.record import Record

if TYPE_CHECKING:
    from remit.agents.directory import Directory
    from remit.core.settings import Settings


SIGNS_OF_A_PROJECT = (".remit", "remit.toml")
SEARCHED = 5_000
"""So many of the newest delegations are looked through for the end of an id; anything older is named in full."""
LAST = "last"
NOTHING_YET = "Nothing has been delegated here yet. Start with `remit demo`, or `remit delegate AGENT name=value`."


def find_root(given: Path | None) -> Path:
    """The folder asked for, else, inside of an agent, where its tree is kept, else the nearest one upwards that looks like a project,
    else this one."""
    if given is not None:
        if not given.is_dir():
            raise Misused(f"There is no folder {given}.", advice="--root takes the folder of a project.")
        return given.resolve()
    attached = _root_of_tree()
    if attached is not None:
        return attached
    here = _here()
    for folder in (here, *here.parents):
        if any((folder / sign).exists() for sign in SIGNS_OF_A_PROJECT) or _is_checkout(folder):
            return folder
    return here


def _is_checkout(folder: Path) -> bool:
    """An empty `.git` is none: sandboxes leave such a folder behind, in /tmp of all places."""
    mark = folder / ".git"
    return mark.is_file() or (mark / "HEAD").exists()


def _root_of_tree() -> Path | None:
    """Of the delegation this process belongs to: an agent in a worktree or a copy finds its own tree there, and nowhere else."""
    try:
        address = Path(decode(os.environ[CALLER]).address)
    except (KeyError, Refused):
        return None
    root = address.parent.parent.parent
    return root if (root / ".remit").is_dir() else None


def _here() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise Unavailable("The current folder does not exist any more.", advice="Change to another one, or use --root.") from None


def project_folder(root: Path) -> Path:
    """Where remit keeps what it knows of the project; it need not be there."""
    folder = root / ".remit"
    if folder.exists() and not folder.is_dir():
        raise Unavailable(
            f"{folder} is a file, and remit keeps a folder of that name.",
            code="STORE_UNAVAILABLE",
            advice=f"Move it: mv {folder} {folder}.old",
        )
    return folder


@contextmanager
def open_record(root: Path) -> Iterator["Store | None"]:
    """What is known of the project's delegations; None when nothing was ever delegated there."""
    path = project_folder(root) / "remit.db"
    if not path.exists():
        yield None
        return
    from remit.stores.sqlite import open_to_look

    store = open_to_look(path)
    try:
        yield store
    finally:
        store.close()


def open_directory(root: Path) -> "Directory":
    """The agents of the project, declared only: nothing is started to carry them out."""
    from remit.agents.directory import Directory
    from remit.builtin import offer_built_in
    from remit.builtin.assistant import offer_assistant
    from remit.models.client import Models
    from remit.system.settings_files import load_settings

    settings = load_settings(root, {})
    directory = Directory(lambda agent: agent)
    directory.load_folder(project_folder(root) / "agents")
    directory.load_definitions(root, settings)
    directory.load_entry_points()
    models = Models(settings)
    offer_built_in(directory, settings, models)
    offer_assistant(directory, settings, models, None)
    return directory


def routed_settings(root: Path, directory: "Directory") -> "Settings":
    """The settings, with the rules of agents that name the commands they take."""

    from remit.agents.routing import with_agents
    from remit.system.settings_files import load_settings

    settings = load_settings(root)
    return replace(settings, routing=with_agents(settings.routing, directory.routed_specs()))


def why_not_loaded(name: str, directory: "Directory", root: Path) -> str:
    """What is wrong with an agent that is declared but faulty, in a sentence; empty when nobody declares it."""
    if directory.find(name) is not None:
        return ""
    for problem in directory.problems:
        place, _, fault = problem.partition(": ")
        file, _, table = place.partition(":[")
        if (table and table.endswith(f"agents.{name}]")) or (not table and Path(file.partition(" (line ")[0]).stem == name):
            return f"{name} is declared in {inside(file, root)} but was not loaded: {fault.rstrip('.')}."
    return ""


def inside(place: str, root: Path) -> str:
    """A place as it is told: a file of the project by its path in there."""
    return place.removeprefix(f"{root}/")


def need_record(store: "Store | None") -> "Store":
    if store is None:
        raise Misused("There is no such delegation: nothing has been delegated here yet.", advice="Start with `remit demo`.")
    return store


def find_session(store: "Store", name: str) -> "Record":
    """By its id, by the beginning or end of it, or the root of whatever was delegated last."""
    if (record := store.get(name)) is not None:
        return record
    if name == LAST:
        return _last(store)
    found = {record.session_id: record for record in _candidates(store, name)}
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise Misused(f"There is no delegation {name}.", code="INVALID_TARGET", advice="`remit history` lists them; `last` is the newest.")
    shown = ", ".join(f"{r.session_id} ({r.agent})" for r in list(found.values())[:5])
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    raise Misused(f"{name} could be {shown}{more}.", code="INVALID_TARGET", advice="Write more of it.")


def _last(store: "Store") -> "Record":
    from remit.core.record import HistoryQuery

    newest = store.history(HistoryQuery(limit=1))
    if not newest:
        raise Misused("Nothing has been delegated here yet.", advice="Start with `remit demo`.")
    return store.get(newest[0].root_id) or newest[0]


def _candidates(store: "Store", name: str) -> "Iterator[Record]":
    if not name:
        return
    from remit.core.record import HistoryQuery

    span = _span_of_prefix(name)
    query = HistoryQuery(limit=SEARCHED) if span is None else HistoryQuery(since=span[0], until=span[1], limit=SEARCHED)
    for record in store.history(query):
        if record.session_id.startswith(name) or record.session_id.endswith(name):
            yield record


def _span_of_prefix(name: str) -> tuple[float, float] | None:
    """When a delegation whose id begins like this was made: the id begins with the second, so history can be asked for that."""
    if not name.startswith("sess_"):
        return None
    digits = name.removeprefix("sess_").partition("_")[0]
    if not digits.isdigit() or not 4 <= len(digits) <= 10:
        return None
    width = 10 ** (10 - len(digits))
    first = int(digits) * width
    return first - 2.0, first + width + 2.0


INSTALL_MCP = "pip install 'remit[mcp]'"
NO_MCP = f"The package mcp is not installed here: delegating by a coding agent needs {INSTALL_MCP}"


def has_mcp() -> bool:
    return importlib.util.find_spec("mcp") is not None and importlib.util.find_spec("mcp_types") is not None
