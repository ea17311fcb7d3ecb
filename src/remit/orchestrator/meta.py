"""`meta "TEXT"`: a new agent or a new command of the project, written from a description (S6.9).

An agent writes the text (`meta-builder`, or whoever that role is bound to); the program alone judges whether it loads and files it. A text
that does not load is shown to its writer once, with the fault; when that does not help it is kept aside, and the user told.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from remit.app import Remit
from remit.board.commits import commit
from remit.core.errors import ErrorInfo, Misused, RemitError
from remit.core.result import Artifact, Return, Status, StopReason
from remit.flow.artifacts import Seen, inspect_artifact, read_bounded, seen_artifacts
from remit.orchestrator.meta_files import LARGEST_BYTES, Kind, Place, fault_in, filed, kept_aside, kind_of, place_for
from remit.orchestrator.outcome import Outcome, Waiting, plainly
from remit.system.threads import off_loop

COMMAND = "meta"
TEXT_AT_MOST = 50_000
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

Below it is the request that is handed to an agent, in which `$ARGUMENTS` stands for everything the user types behind the command's name,
`$1` to `$9` for single words of it, and `@path` for a file of the project. The head may have `agent:` (an agent of the project) and
`timeout:` (seconds).""",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the user asked for."""

    text: str
    kind: Kind | None = None
    """None: the words say it."""
    name: str | None = None
    """None: made from the words."""
    timeout: float | None = None
    built_in_commands: Collection[str] = ()
    """Names that no command file can have."""


def placed(root: Path, wish: Wish, agents: Collection[str]) -> Place:
    """What would be written, and where. Raises where that cannot be. Blocking."""
    from remit.orchestrator.commandfiles import names

    if not wish.text.strip():
        raise Misused("There is no description.", advice='Say what is wanted: remit meta "Checks links in Markdown files".')
    if len(wish.text) > TEXT_AT_MOST:
        raise Misused(f"The description has {len(wish.text):,} characters.", advice=f"At most {TEXT_AT_MOST:,} are taken.")
    kind = wish.kind or kind_of(wish.text)
    taken = agents if kind is Kind.AGENT else (*wish.built_in_commands, *names(root))
    return place_for(root, kind, wish.name, wish.text, taken)


async def meta(remit: Remit, wish: Wish, *, waiting: Waiting = plainly) -> Outcome:
    agents = remit.directory.names()
    place = await off_loop(placed, remit.root, wish, agents)
    result, text, fault = await _written(remit, wish, place, waiting, "")
    if fault and text is not None and not _is_plain(result):
        result, text, fault = await _written(remit, wish, place, waiting, f"{fault}\n\nThe file was:\n\n<<<\n{text[:TEXT_AT_MOST]}\n>>>")
    if result.status is not Status.COMPLETED:
        return _not_written(place, result)
    if fault or text is None:
        return await off_loop(_not_loaded, remit.root, place, result, text, fault)
    return await off_loop(_file, remit.root, place, result, text)


def rehearsed(root: Path, wish: Wish, agents: Collection[str], log_line: str) -> Outcome:
    place = placed(root, wish, agents)
    return Outcome(
        command=COMMAND,
        status="completed",
        summary=f"The {place.kind} {place.name} would be written to {place.path}.",
        data={"dry_run": True, "kind": str(place.kind), "name": place.name, "path": place.path, "route": log_line},
    )


async def _written(remit: Remit, wish: Wish, place: Place, waiting: Waiting, fault: str) -> tuple[Return, str | None, str]:
    """What the builder returned, the text that it brought, and why that is no such file."""
    parameters = {"task": _words(wish, place, fault), "description": wish.text.strip(), "kind": str(place.kind), "name": place.name}
    handle = await remit.start(f"/{COMMAND}", parameters=parameters, timeout=wish.timeout)
    result = await waiting(remit, handle)
    if result.status is not Status.COMPLETED:
        return result, None, ""
    text = await off_loop(_text_in, remit.root, place, result)
    if text is None:
        return result, None, "it names no file, and its data holds none."
    return result, text, await off_loop(fault_in, remit.root, place, text, remit.directory.names())


def _words(wish: Wish, place: Place, fault: str) -> str:
    parts = [
        f"Write the file of a new {place.kind} named {place.name}. It is wanted for this:",
        wish.text.strip(),
        _FORMS[place.kind],
        f"Write it as `{place.name}.md` into your folder for intermediate files and name that path as an artifact of type documentation, "
        'or put its whole text into data as {"file": "…"}. It is checked, and filed in its place, afterwards. Do not do what it is for.',
    ]
    if fault:
        parts.append(f"What you wrote before does not load: {fault}")
    return "\n\n".join(parts)


def _text_in(root: Path, place: Place, result: Return) -> str | None:
    """The artifact of that name, else the only Markdown file, else the text in the data. Blocking."""
    pages = [one for one in result.artifacts if one.path.endswith(".md") and not one.path.rpartition("/")[2].startswith("answer")]
    named = [one for one in pages if one.path.rpartition("/")[2] == f"{place.name}.md"]
    for artifact in named or (pages if len(pages) == 1 else []):
        if isinstance(inspect_artifact(root, artifact.path), Seen):
            data = read_bounded((root / artifact.path).resolve(), LARGEST_BYTES + 1)
            if data is not None:
                return data.decode("utf-8", "replace").removeprefix("\ufeff")
    text = result.data.get("file") if isinstance(result.data, dict) else None
    return text if isinstance(text, str) and text.strip() else None


def _is_plain(result: Return) -> bool:
    """Written by rule: asked again it writes the same."""
    return isinstance(result.data, dict) and result.data.get("is_plain") is True


def _file(root: Path, place: Place, result: Return, text: str) -> Outcome:
    try:
        filed(root, place, text)
    except RemitError as error:  # what was written is kept, whoever was in its place
        return _not_loaded(root, place, result, text, error.message)
    made = commit(root, [place.path], f"meta: add {place.kind} {place.name}", session_id=result.session_id)
    use = f'`remit delegate {place.name} task="…"`' if place.kind is Kind.AGENT else f"`remit {place.name} …`"
    return Outcome(
        command=COMMAND,
        status="completed",
        summary=f"The {place.kind} {place.name} is there: {place.path}. {result.summary}",
        artifacts=seen_artifacts(root, [Artifact(type="documentation", path=place.path, summary=f"The {place.kind} {place.name}")]),
        next_steps=f"Read it; {use} uses it.",
        warnings=(*result.warnings, *([made.warning] if made.warning else [])),
        commit=made.short,
        session_id=result.session_id,
        data={"kind": str(place.kind), "name": place.name, "path": place.path, "agent": result.metadata.agent_type},
    )


def _not_loaded(root: Path, place: Place, result: Return, text: str | None, fault: str) -> Outcome:
    aside = kept_aside(root, place, text) if text else ""
    kept = f" It is kept as {aside}." if aside else ""
    error = ErrorInfo(
        type="validation",
        code="VALIDATION_FAILED",
        message=f"What {result.metadata.agent_type} wrote could not be filed: {fault}{kept}",
        recoverable=True,
        recommendation=f"Mend it and put it at {place.path}, or say more and try again." if aside else "Say more, and try again.",
    )
    return Outcome(
        command=COMMAND,
        status="failed",
        summary=f"No {place.kind} was made. {error.message}",
        errors=(error,),
        next_steps=error.recommendation,
        warnings=result.warnings,
        session_id=result.session_id,
        stop_reason=str(StopReason.INVALID_RETURN),
        data={"kind": str(place.kind), "name": place.name, "kept": aside or None},
    )


def _not_written(place: Place, result: Return) -> Outcome:
    outcome = Outcome(
        command=COMMAND,
        status=str(result.status),
        summary=f"No {place.kind} was made. {result.summary}",
        artifacts=tuple(result.artifacts),
        errors=tuple(result.errors),
        next_steps=result.next_steps,
        warnings=result.warnings,
        session_id=result.session_id,
        stop_reason=str(result.stop_reason),
    )
    return replace(outcome, data={"kind": str(place.kind), "name": place.name})
