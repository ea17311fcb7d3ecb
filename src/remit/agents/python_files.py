"""Python agent files of a project: described in a child process, and imported only to run one of their agents.

A description has what listing, schemas and completion need. It is created by loading the file in a separate interpreter with a time limit,
and stored by the hash of the file's content: the next listing starts nothing. An unapproved file is never loaded anywhere: the names of its
agents are read from its source."""

import ast
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from remit.agents.function import FunctionAgent, spec_from_wire, spec_to_wire
from remit.agents.process.target import Place, Target, load_file, must_have_name
from remit.agents.project_files import bytes_of
from remit.core.agents import NOT_APPROVED, AgentSpec, Isolation, agent_name
from remit.core.context import Context
from remit.core.errors import Misused, Refused, RemitError, Unavailable
from remit.core.parameters import WrongParameters, named_parameters
from remit.core.text import shorten
from remit.system.files import cache_folder, private_folder, read_private, write_private
from remit.system.interpreter import BASIC, OWN, TOOLCHAINS, agent_path, listed_environment, module_command
from remit.system.processes import adopt_orphans, descendants, die_with_parent, kill_tree
from remit.system.trust import ADVICE, CODE, MAX_FILES

FILES = "[!._]*.py"
LARGEST_BYTES = 1024 * 1024
LARGEST_LISTED = 64 * 1024
"""A larger unapproved file is not parsed for names."""
LARGEST_DESCRIPTION = 4 * 1024 * 1024
START_SECONDS = 10.0
"""Time limit for the start of the interpreter, which runs no project code itself."""
LATE_KEPT_SECONDS = 60.0
"""A file that did not load in time is retried after this long, or when it changes."""
KEPT = 1000
"""Maximum stored descriptions; the oldest are removed."""
HIDDEN = "hidden"
"""Value of every unlisted variable while a file is described: code that reads a key at import finds one."""

Approval = Callable[[Path, bytes], bool]


# ---- files and their agents


class PythonFile:
    """One file with its approved content. Its module is executed at most once per object, and only from that content."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path = path
        self.data = data
        self.digest = sha256(data).hexdigest()
        self.real = str(path.resolve())
        name = path.stem.replace("-", "_")
        self.module = f"remit_agents_{sha256(self.real.encode()).hexdigest()[:8]}_{name}"
        """A unique name, the same in every process."""
        self._agents: dict[str, FunctionAgent] | None = None
        self._loading = threading.Lock()

    @property
    def agents(self) -> dict[str, FunctionAgent]:
        """Imports the file, once. Exceptions of its code are raised here."""
        with self._loading:
            if self._agents is None:
                module = load_file(self.module, self.real, self.digest)
                self._agents = {agent.spec.name: agent for agent in agents_in(module, str(self.path))}
            return self._agents


class FileAgent:
    """An agent of a Python file, from its description. Listing it and naming its parameters imports nothing; its executor runs it."""

    __slots__ = ("_file", "_plain", "spec", "target")

    def __init__(self, file: PythonFile, described: Mapping[str, Any]) -> None:
        self._file = file
        self._plain: dict[str, str] = dict(described.get("plain", {}))
        """Parameters of plain types, by the name of the type."""
        source = f"{file.path}:{described['qualname']}"
        self.spec = spec_from_wire({**described["spec"], "acts_for_caller": False, "source": source})
        if self.spec.isolation is Isolation.PROCESS:
            must_have_name(described["qualname"])
        self.target = Target(place=Place.FILE, module=file.module, file=file.real, digest=file.digest, qualname=str(described["qualname"]))

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Values of plain types are checked here, others where the file is imported, before its function runs."""
        named = named_parameters(self.spec.name, self.spec.parameters_schema, parameters)
        faults = [(name, fault) for name, value in named.items() if (fault := _plain_fault(self._plain.get(name), value))]
        if faults:
            raise WrongParameters(self.spec.name, faults, tuple(self.spec.parameters_schema.get("properties", ())))
        return parameters

    async def perform(self, ctx: Context, arguments: Any) -> Any:
        raise Misused(f"{self.spec.name} is only listed here: nothing runs it.")

    def load(self) -> FunctionAgent:
        """The agent itself; imports its file in this process."""
        try:
            return self._file.agents[self.spec.name]
        except KeyError:
            raise Unavailable(f"{self._file.path} declares no agent {self.spec.name!r} when it is loaded in this process.") from None
        except RemitError:
            raise
        except (Exception, SystemExit) as error:
            raise Unavailable(f"{fault_in(str(self._file.path), error)}.", advice="Fix that file.") from error


_PLAIN: Mapping[str, Any] = {kind.__name__: kind for kind in (int, float, bool, list, dict)}
"""Types that are checked without the file: pydantic converts what it accepts for them in one way, whatever they contain."""


def _plain_fault(kind: str | None, value: Any) -> str:
    """The fault of a value that a plain type does not accept; empty: it is accepted, or checked elsewhere."""
    if kind is None:
        return ""
    try:
        TypeAdapter(_PLAIN[kind]).validate_python(value)
    except ValidationError as error:
        return error.errors()[0]["msg"].replace("Input should", " must", 1) + f", not {shorten(repr(value), 80)}"
    return ""


class UnapprovedAgent:
    """An agent of an unapproved file: listed, never run."""

    __slots__ = ("spec",)

    def __init__(self, name: str, source: str) -> None:
        self.spec = AgentSpec(name=agent_name(name), kind=NOT_APPROVED, source=source)

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        raise Refused(
            f"{self.spec.name} is declared in {self.spec.source}, which is not approved.",
            code=CODE,
            advice=ADVICE,
        )

    async def perform(self, ctx: Context, arguments: Any) -> Any:
        return self.check(arguments)


def agents_in(module: ModuleType, source: str | None = None) -> list[FunctionAgent]:
    """The agents that a module defines, not those it imports."""
    found = []
    for value in list(vars(module).values()):
        if isinstance(value, FunctionAgent) and value.function.__module__ == module.__name__:
            if source is not None:
                value.spec = replace(value.spec, source=f"{source}:{value.function.__qualname__}")
            found.append(value)
    return found


def agents_of_file(path: Path) -> list[FunctionAgent]:
    """The agents of a Python file, imported here. Exceptions of its code are raised here."""
    return list(PythonFile(path, path.read_bytes()).agents.values())


def fault_in(where: str, error: BaseException) -> str:
    """A message about a fault in a file, with its line."""
    frames = traceback.extract_tb(error.__traceback__)
    line = next((f" (line {frame.lineno})" for frame in reversed(frames) if frame.filename == where), "")
    return f"{where}{line}: {type(error).__name__}: {error}"


def names_in_source(data: bytes) -> list[str]:
    """Names in top-level `@agent("…")` decorators. Executes nothing of the file."""
    try:
        tree = ast.parse(data if len(data) <= LARGEST_LISTED else b"")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [name for function in functions for one in function.decorator_list if (name := _declared_name(one, function.name))]


def _declared_name(decorator: ast.expr, default: str) -> str:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    if (called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else "") != "agent":
        return ""
    given = [*decorator.args, *(one.value for one in decorator.keywords if one.arg == "name")] if isinstance(decorator, ast.Call) else []
    name = given[0].value if given and isinstance(given[0], ast.Constant) else default
    return name if isinstance(name, str) else default


# ---- descriptions of a folder


class FolderDescription(NamedTuple):
    agents: tuple[FileAgent, ...] = ()
    unapproved: tuple[UnapprovedAgent, ...] = ()
    problems: tuple[str, ...] = ()


def describe_project(folder: Path, is_approved: Approval, seconds: float) -> FolderDescription:
    """The agents that the Python files in `agents` below `.remit` declare. Imports nothing here.

    `seconds`: time limit for files to load; they load in parallel."""
    files: list[PythonFile] = []
    unapproved: list[UnapprovedAgent] = []
    problems: list[str] = []
    for path in sorted((folder / "agents").glob(FILES))[:MAX_FILES]:
        try:
            data = bytes_of(path, folder.parent, LARGEST_BYTES)
            if is_approved(path, data):
                files.append(PythonFile(path, data))
                continue
            unapproved += [UnapprovedAgent(name, str(path)) for name in names_in_source(data)]
        except Misused as error:
            problems.append(f"{path}: {error.message}")
    agents: list[FileAgent] = []
    for file, described in zip(files, _descriptions(files, seconds), strict=True):
        problems += [f"{file.path}{described['error']}"] if "error" in described else []
        for one in described.get("agents", ()):
            try:
                agents.append(FileAgent(file, one))
            except (RemitError, LookupError, TypeError, ValueError) as error:
                problems.append(f"{file.path}: {type(error).__name__}: {error}")
    return FolderDescription(agents=tuple(agents), unapproved=tuple(unapproved), problems=tuple(problems))


def _descriptions(files: Sequence[PythonFile], seconds: float) -> list[Mapping[str, Any]]:
    """Stored by the hash of a file's name and content, in a folder of the user. A description is not code: a file is loaded only from
    approved content."""
    found = [_read_stored(file) for file in files]
    missing = [file for file, described in zip(files, found, strict=True) if described is None]
    made = iter(_describe_in_child(missing, seconds) if missing else ())
    for place, file in enumerate(files):
        if found[place] is None:
            found[place] = described = next(made)
            if "error" not in described or "late" in described:
                _store(file, described)
    return [described or {} for described in found]


def _place(file: PythonFile) -> Path:
    installed_at = os.stat(__file__).st_mtime_ns  # another version of remit creates its own descriptions
    key = json.dumps([installed_at, sys.version, sys.prefix, file.path.name, file.digest])
    return cache_folder() / "descriptions" / f"{sha256(key.encode()).hexdigest()}.json"


def _read_stored(file: PythonFile) -> Mapping[str, Any] | None:
    try:
        found = json.loads(read_private(_place(file)) or b"null")
    except (RemitError, ValueError):
        return None
    if not isinstance(found, dict) or time.time() - found.get("late", time.time()) > LATE_KEPT_SECONDS:
        return None
    return found


def _store(file: PythonFile, described: Mapping[str, Any]) -> None:
    """If the folder is not writable, each listing costs a child process."""
    place = _place(file)
    with contextlib.suppress(OSError, RemitError):
        private_folder(place.parent)
        write_private(place, to_json(described), fsync=False)
        kept = list(place.parent.iterdir())
        for old in sorted(kept, key=lambda one: one.stat().st_mtime)[: max(0, len(kept) - KEPT)]:
            old.unlink()


def _describe_in_child(files: Sequence[PythonFile], seconds: float) -> list[Mapping[str, Any]]:
    """A description or an error for each file, made in a child process, whatever the files do when loaded."""
    environment = {name: HIDDEN for name in os.environ if not name.startswith(OWN)} | listed_environment((*BASIC, *TOOLCHAINS))
    plan = {
        "sys_path": agent_path(),
        "folder": os.getcwd(),
        "seconds": seconds,
        "files": [{"path": str(file.path), "real": file.real, "module": file.module, "digest": file.digest} for file in files],
    }
    process = subprocess.Popen(
        module_command("remit.agents.python_files"), env=environment, cwd="/", start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        output, _ = process.communicate(to_json(plan), timeout=seconds + START_SECONDS)
        found = json.loads(output)
        if isinstance(found, list) and len(found) == len(files) and all(isinstance(one, dict) for one in found):
            return found
    except (subprocess.TimeoutExpired, ValueError):
        pass
    finally:
        if process.poll() is None:  # otherwise its pid may be another's by now
            kill_tree(process.pid, term_grace=0.0)
            process.wait()
    return [{"error": ": it could not be described: its process ended without an answer."}] * len(files)


# ---- the child: one fork for each file


def main() -> None:
    plan = json.load(sys.stdin.buffer)
    sys.path[:] = plan["sys_path"]
    with contextlib.suppress(OSError):
        os.chdir(plan["folder"])
    adopt_orphans()
    readers = [_fork(file) for file in plan["files"]]
    ends_at = time.monotonic() + plan["seconds"]
    answers = _answers(readers, ends_at)
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    late = {"error": f": it did not load within {plan['seconds']:g} s (the setting describe_seconds).", "late": time.time()}
    sys.stdout.buffer.write(to_json([_read(answers.get(reader), late) for reader in readers]))


def _read(answer: bytes | None, late: Mapping[str, Any]) -> Any:
    if answer is None:
        return late
    try:
        return json.loads(answer)
    except ValueError:
        return {"error": ": it ended its process while it was loaded."}


def _fork(file: Mapping[str, str]) -> int:
    """Fork a process that loads one file. Returns the read end of the pipe for its description."""
    reader, writer = os.pipe()
    parent = os.getpid()
    if os.fork() == 0:
        try:
            os.setsid()
            die_with_parent(parent)
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(nothing, stream)
            with os.fdopen(writer, "wb") as answer:
                answer.write(_describe(file) + b"\n")
        finally:
            os._exit(0)
    os.close(writer)
    return reader


def _describe(file: Mapping[str, str]) -> bytes:
    try:
        found = agents_in(load_file(file["module"], file["real"], file["digest"]))
        return to_json({"agents": [_description(agent) for agent in found]})
    except (Exception, SystemExit) as error:  # noqa: BLE001 - any exception of a project's file at import is its description
        return json.dumps({"error": fault_in(file["real"], error).removeprefix(file["real"])}).encode()


def _description(agent: FunctionAgent) -> dict[str, Any]:
    hints = get_type_hints(agent.function, include_extras=True)
    plain = {name: kind.__name__ for name, hint in hints.items() if (kind := get_origin(hint) or hint) in _PLAIN.values()}
    return {"qualname": agent.function.__qualname__, "spec": spec_to_wire(agent.spec), "plain": plain}


def _answers(readers: Sequence[int], ends_at: float) -> dict[int, bytes]:
    """The line received on each pipe in time. A process that the file left behind may keep its pipe open."""
    begun: dict[int, bytes] = dict.fromkeys(readers, b"")
    whole: dict[int, bytes] = {}
    while begun and (left := ends_at - time.monotonic()) > 0:
        for reader in select.select(list(begun), [], [], left)[0]:
            data = os.read(reader, 65536)
            begun[reader] += data
            if not data or data.endswith(b"\n") or len(begun[reader]) > LARGEST_DESCRIPTION:
                whole[reader] = begun.pop(reader)
    return whole


if __name__ == "__main__":
    main()
