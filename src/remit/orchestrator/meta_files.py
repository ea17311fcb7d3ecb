"""A new agent file or command file: its name, whether its text loads, and its place (S6.9). Files and rules only, no agent runs here.

Nothing that is there is ever written over, and nothing is filed that does not load, or that gives itself more than its carrier has.
Blocking. Used by `meta`.
"""

import os
import re
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from remit.agents import vendors
from remit.agents.files import FOLDERS as AGENT_FOLDERS
from remit.agents.pages import Page, page_of
from remit.agents.profiles import definition_for
from remit.core.agents import COME_WITH_REMIT, ROLES
from remit.core.errors import Misused, Refused, RemitError, Unavailable
from remit.orchestrator import commandfiles
from remit.system.files import write_beside

ASIDE = ".remit/meta"
"""Where a text is kept that does not load."""
NAME_WORDS, NAME_LENGTH = 4, 40
LARGEST_BYTES = 256 * 1024
_FILLING = re.compile(
    "a|an|the|that|this|which|who|and|or|of|for|to|in|on|with|by|from|it|is|are|be|as|at|into|all|any|every|each|please|me|my|our|we|i|"
    "agent|command|new|write|make|create|build|want|need|should|would|can|could|will|when|then|runs|does|do"
)


class Kind(StrEnum):
    AGENT = "agent"
    COMMAND = "command"

    @property
    def folder(self) -> str:
        return AGENT_FOLDERS[0] if self is Kind.AGENT else commandfiles.OWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    kind: Kind
    name: str

    @property
    def path(self) -> str:
        """Relative to the root."""
        return f"{self.kind.folder}/{self.name}.md"


def kind_of(text: str) -> Kind:
    """What the words ask for, where nobody says: a command when they begin by speaking of one, else an agent."""
    opening = " ".join(text.lower().split()[:6])
    return Kind.COMMAND if re.search(r"\bcommand\b", opening) and not re.search(r"\bagent\b", opening) else Kind.AGENT


def place_for(root: Path, kind: Kind, name: str | None, text: str, taken: Collection[str]) -> Place:
    """Where the file goes. `taken`: names that exist already, of agents or of commands. Raises where a name that was given cannot be."""
    if name is not None:
        _check_name(kind, name)
        if why := _why_taken(root, kind, name, taken):
            raise Refused(why, code="INVALID_PARAMETERS", advice="Give another name with --name.")
        return Place(kind=kind, name=name)
    free = next(one for one in _names_from(text) if not _why_taken(root, kind, one, taken))
    return Place(kind=kind, name=free)


def fault_in(root: Path, place: Place, text: str, agents: Collection[str]) -> str:
    """Why the text is no such file; empty: it is one. It is read as the program will read it."""
    if not text.strip():
        return "the file is empty."
    if len(text.encode("utf-8", "replace")) > LARGEST_BYTES:
        return f"it is larger than {LARGEST_BYTES // 1024} KiB."
    if "\0" in text:
        return "it is not text."
    path = root / place.path
    try:
        page = page_of(text.replace("\r\n", "\n"), path)
        if page is None and place.kind is Kind.AGENT:
            return "line 1: it has no head, so it is no agent. It must begin with a line of three dashes."
        if place.kind is Kind.AGENT:
            return _fault_of_agent(page, place, agents)
        return _fault_of_command(page or Page(path=path, head={}, body=text.strip(), lines={}), root, agents)
    except Misused as error:
        return error.message.removeprefix(f"{path}: ").removeprefix(f"{place.path}: ")


def filed(root: Path, place: Place, text: str) -> None:
    """Put it in its place, whole or not at all. Raises `Refused` where somebody made a file of that name meanwhile."""
    folder = root / place.kind.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not folder.resolve().is_relative_to(root.resolve()):
            raise Refused(f"{place.kind.folder} is a link that leads out of the project.", advice="Take the link away.")
        descriptor, beside = tempfile.mkstemp(prefix=".", suffix=".new", dir=folder)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as opened:
                opened.write(text if text.endswith("\n") else f"{text}\n")
            os.chmod(beside, 0o644)
            os.link(beside, root / place.path)
        finally:
            os.unlink(beside)
    except FileExistsError:
        raise Refused(f"{place.path} is there already; it stays as it is.", advice="Give another name with --name.") from None
    except (OSError, RuntimeError) as error:
        raise Unavailable(f"{place.path} cannot be written: {getattr(error, 'strerror', None) or error}.") from None


def kept_aside(root: Path, place: Place, text: str) -> str:
    """Its path, relative to the root; empty where it cannot be kept."""
    folder = root / ASIDE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not folder.resolve().is_relative_to(root.resolve()):
            return ""
        return write_beside(folder, f"{place.kind}-{place.name}.md", text.encode("utf-8", "replace")).relative_to(root).as_posix()
    except (OSError, RuntimeError, RemitError):
        return ""


def _fault_of_agent(page: Page | None, place: Place, agents: Collection[str]) -> str:
    assert page is not None
    vendors.be_modest(page)
    declared = vendors.ours(page)
    if declared is None:
        return "it declares no agent."
    if declared.name != place.name:
        return f"line {page.lines.get('name', 1)}: it names itself {declared.name!r}, and is to be {place.name!r}."
    if not page.body:
        return "it says nothing below its head: the agent would not know what it is."
    carrier = definition_for(declared).runs_on
    if carrier is not None and carrier not in agents:
        return f"line {page.lines.get('runs_on', 2)}: there is no agent {carrier!r} that could carry it out."
    return ""


def _fault_of_command(page: Page, root: Path, agents: Collection[str]) -> str:
    command = commandfiles.command_of(page, root)
    if command.agent is not None and command.agent not in agents:
        return f"line {page.lines.get('agent', 2)}: there is no agent {command.agent!r} that could carry it out."
    return ""


def _check_name(kind: Kind, name: str) -> None:
    """Alike for both: an agent file whose name begins with an underscore would be read by nobody."""
    if not commandfiles.is_name(name):
        what = "an agent file" if kind is Kind.AGENT else "a command"
        raise Misused(f"{name!r} is not a name for {what}.", advice="Use up to 64 letters, digits, - and _; begin with a letter or digit.")


def _why_taken(root: Path, kind: Kind, name: str, taken: Collection[str]) -> str:
    """Names that differ only in their letters' case would be one file on many a disk."""
    place = Place(kind=kind, name=name)
    ours = (*ROLES, *COME_WITH_REMIT) if kind is Kind.AGENT else ()
    if name.casefold() in ours:
        return f"The agent {name.casefold()!r} comes with remit."
    same = next((one for one in taken if one.casefold() == name.casefold()), None)
    if same is not None:
        return f"There is {'an agent' if kind is Kind.AGENT else 'a command'} {same!r} already."
    if (root / place.path).exists() or (root / place.path).is_symlink():
        return f"{place.path} is there already."
    return ""


def _names_from(text: str) -> Iterator[str]:
    words = re.findall(r"[a-z0-9]+", text.lower())
    telling = [word for word in words if not _FILLING.fullmatch(word) and len(word) > 1][:NAME_WORDS]
    base = "-".join(telling)[:NAME_LENGTH].strip("-")
    base = base if commandfiles.is_name(base) else "new"
    yield base
    yield from (f"{base}-{number}" for number in range(2, 10_000))
