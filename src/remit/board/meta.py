"""`meta "TEXT"`: a new agent file or command file of the project, written from a description.

The agent of the role `meta-builder` writes the text; program code checks whether it loads and files it. Existing files are not overwritten,
and no file is accepted that gives itself more rights than its executor has."""

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from remit.agents.agent_files import Page, check_guest, ours, page_of
from remit.agents.profiles import definition_for
from remit.app import Remit
from remit.board import command_files
from remit.board.command_lifecycle import new_error, require_route
from remit.board.commits import commit, note_failed_commit
from remit.board.outcome import Outcome, Waiting, wait_for_result
from remit.board.verdicts import find_document
from remit.core.agents import AGENT_FOLDERS, BUILTIN_TARGETS, ROLES
from remit.core.errors import Misused, Refused, RemitError
from remit.core.result import Artifact, Return, Status, StopReason
from remit.core.text import fence_untrusted
from remit.system.artifact_files import checked_artifacts
from remit.system.threads import off_loop
from remit.system.trust import create_approved

COMMAND = "meta"
NAME_WORDS, NAME_LENGTH = 4, 40
MAX_BYTES = 256 * 1024


class Kind(StrEnum):
    AGENT = "agent"
    COMMAND = "command"

    @property
    def folder(self) -> str:
        return AGENT_FOLDERS[0] if self is Kind.AGENT else command_files.OWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    kind: Kind
    name: str

    @property
    def path(self) -> str:
        """Relative to the root."""
        return f"{self.kind.folder}/{self.name}.md"


_FORMS = {
    Kind.AGENT: """\
An agent file is Markdown that begins with a YAML head between two lines of three dashes:

---
description: what it is for, in one sentence; who delegates decides by it
---

Below it are its instructions: what it is, what it is given, how it works, what it hands back, what it must not do. The head may have
`model:`, and under `remit:` the keys `timeout` (seconds) and `runs_on` (an agent). Nothing that runs a program or widens what it may do
is accepted there.""",
    Kind.COMMAND: """\
A command file is Markdown that begins with a YAML head between two lines of three dashes:

---
description: what it does, in one sentence
argument-hint: "[what the user types behind its name]"
---

Below it is the request that is handed to an agent, in which `$ARGUMENTS` means everything the user types behind the command's name, and
`$1` to `$9` single words of it. The head may have `agent:` (an agent of the project) and `timeout:` (seconds).""",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaRequest:
    """The user's request."""

    text: str
    kind: Kind = Kind.AGENT
    name: str | None = None
    """None: derived from the text."""
    timeout: float | None = None
    built_in_commands: Collection[str] = ()
    """Names that command files cannot have."""


def find_place(root: Path, request: MetaRequest, agents: Collection[str]) -> Place:
    """What would be written, and where. Raises if that is not possible. Blocking."""
    if not request.text.strip():
        raise Misused("The description is missing.", advice='Say what is wanted: remit meta "Checks links in Markdown files".')
    taken = agents if request.kind is Kind.AGENT else (*request.built_in_commands, *command_files.places(root))
    if request.name is None:
        places = (Place(kind=request.kind, name=name) for name in _names_from(request.text))
        return next(place for place in places if not _why_taken(root, place, taken))
    if not command_files.is_name(request.name):
        raise Misused(
            f"{request.name!r} is not a name for a file.", advice="Use up to 64 letters, digits, - and _; begin with a letter or digit."
        )
    place = Place(kind=request.kind, name=request.name)
    if why := _why_taken(root, place, taken):
        raise Refused(why, code="INVALID_PARAMETERS", advice="Give another name with --name.")
    return place


async def meta(remit: Remit, request: MetaRequest, *, waiting: Waiting = wait_for_result) -> Outcome:
    """Raises `Refused` before anything is written if no agent or model is configured."""
    require_route(remit.settings, remit.directory.find, COMMAND, None, request.timeout)
    place = await off_loop(find_place, remit.root, request, remit.directory.names())
    parameters = {"task": _words(request, place), "description": request.text.strip(), "kind": str(place.kind), "name": place.name}
    result = await waiting(remit, await remit.start(f"/{COMMAND}", parameters=parameters, timeout=request.timeout))
    if result.status is not Status.COMPLETED:
        return Outcome.of_return(COMMAND, result, summary=f"No {place.kind} was made. {result.summary}")
    return await off_loop(_file, remit, place, result, remit.directory.names())


def _words(request: MetaRequest, place: Place) -> str:
    parts = [
        _FORMS[place.kind],
        f"Write the file of a new {place.kind} named {place.name}. It is wanted for this:\n\n{fence_untrusted(request.text)}",
        f"Write it as `{place.name}.md` into your folder for intermediate files and name that path as an artifact of type documentation, "
        'or put its whole text into data as {"file": "…"}. It is checked, and filed in its place, afterwards. Do not do what it is for.',
    ]
    return "\n\n".join(parts)


def _file(remit: Remit, place: Place, result: Return, agents: Collection[str]) -> Outcome:
    """Of its artifacts the one of that name, else the only Markdown file; else the text in its data."""
    root, wanted = remit.root, remit.settings.board_commits
    pages = [one for one in result.artifacts if one.path.endswith(".md") and not one.path.rpartition("/")[2].startswith("answer")]
    named = [one for one in pages if one.path.rpartition("/")[2] == f"{place.name}.md"]
    found = find_document(root, result, "file", named or (pages if len(pages) == 1 else []))
    text = found.data.decode("utf-8", "replace").removeprefix("\ufeff") if found is not None else ""
    fault = fault_in(root, place, text, agents) if found is not None else "it names no file, and its data contains none."
    if not fault:
        try:
            create_approved(root, root / place.path, (text if text.endswith("\n") else f"{text}\n").encode("utf-8", "replace"))
        except FileExistsError:
            fault = f"{place.path} exists already and is not overwritten."
        except RemitError as error:
            fault = error.message
    if fault:
        message = f"What {result.metadata.agent_type} wrote could not be filed: {fault}"
        advice = f"Describe more, and try again. `remit show {result.session_id}` has what it wrote."
        failed = {"status": "failed", "errors": (new_error("validation", "VALIDATION_FAILED", message, advice),), "next_steps": advice}
        return Outcome.of_return(COMMAND, result, summary=message, stop_reason=str(StopReason.INVALID_RETURN), **failed)
    made = commit(root, [place.path], f"meta: add {place.kind} {place.name}", session_id=result.session_id, wanted=wanted)
    if made.warning:
        note_failed_commit(root, made.warning, COMMAND, session_id=result.session_id)
    use = f'`remit delegate {place.name} task="…"`' if place.kind is Kind.AGENT else f"`remit {place.name} …`"
    return Outcome.of_return(
        COMMAND,
        result,
        summary=f"The {place.kind} {place.name} is filed: {place.path}. {result.summary}",
        artifacts=checked_artifacts(root, [Artifact(type="documentation", path=place.path, summary=f"The {place.kind} {place.name}")]),
        next_steps=f"Read it; {use} uses it.",
        warnings=(*result.warnings, *([made.warning] if made.warning else [])),
        commit=made.short,
        data={"name": place.name, "path": place.path},
    )


# ---- the file


def fault_in(root: Path, place: Place, text: str, agents: Collection[str]) -> str:
    """The fault of the text; empty if it is valid. Read as the program will read it."""
    if "\0" in text or len(text.encode("utf-8", "replace")) > MAX_BYTES:
        return f"it is not text, or larger than {MAX_BYTES // 1024} KiB."
    path = root / place.path
    try:
        page = page_of(text.replace("\r\n", "\n"), path)
        if place.kind is Kind.AGENT:
            return _fault_of_agent(page, place, agents)
        page = page or Page(path=path, head={}, body=text.strip())
        return _fault_of_carrier("agent", command_files.command_of(page).agent, agents)
    except Misused as error:
        return error.message.removeprefix(f"{path}: ").removeprefix(f"{place.path}: ")


def _fault_of_agent(page: Page | None, place: Place, agents: Collection[str]) -> str:
    if page is None:
        return "it has no front matter, so it is not an agent. It must begin with a line of three dashes."
    check_guest(page)
    declared = ours(page)
    if declared is None:
        return "it declares no agent."
    if declared.name != place.name:
        return f"its name is {declared.name!r}, but must be {place.name!r}."
    if not page.body:
        return "it has no text below its front matter, so the agent has no instructions."
    return _fault_of_carrier("runs_on", definition_for(declared).runs_on, agents)


def _fault_of_carrier(key: str, executor: str | None, agents: Collection[str]) -> str:
    if executor is None or executor in agents:
        return ""
    return f"{key}: no agent {executor!r} can carry it out."


def _why_taken(root: Path, place: Place, taken: Collection[str]) -> str:
    """Names that differ only in case would be one file on many disks."""
    name = place.name.casefold()
    if place.kind is Kind.AGENT and name in (*ROLES, *BUILTIN_TARGETS):
        return f"The agent {name!r} comes with remit."
    same = next((one for one in taken if one.casefold() == name), None)
    if same is not None:
        return f"There is {'an agent' if place.kind is Kind.AGENT else 'a command'} {same!r} already."
    return f"{place.path} already exists." if os.path.lexists(root / place.path) else ""


def _names_from(text: str) -> Iterator[str]:
    base = "-".join(re.findall(r"[a-z0-9]+", text.lower())[:NAME_WORDS])[:NAME_LENGTH].strip("-")
    base = base if command_files.is_name(base) else "new"
    yield base
    yield from (f"{base}-{number}" for number in range(2, 10_000))
