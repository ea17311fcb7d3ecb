"""Runs the commands of a document: every command that it shows, in page order, in a project of its own; the shown output is compared.

Hidden comments of a document:

- `<!-- project: PATH -->` before a block: a file of that project
- `<!-- run: COMMAND -->`: a prerequisite of the page
- `<!-- not run: REASON -->` before a block: its commands are only checked against the command line

`# exit code 5` after a command is its expected exit code instead of 0. `…` in an output matches any text, in a line of its own any lines.
SESSION is the latest delegation. Coding agents are fake programs (`tests/real` runs real ones); language models are scripted.
"""

import asyncio
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from docs_project import make_project
from documents import ROOT

from remit.testing import ModelRequest, Reply, Say, ScriptedModels, valid_return
from support import cli

DOCUMENTS = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PART = re.compile(
    r"^<!-- run: (?P<hidden>[^\n]+?) -->$|(?:^<!-- (?P<kind>[a-z ]+): (?P<note>[^\n]+?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
COMMAND_LANGUAGES = ("sh", "console")
SERVERS = ("remit serve", "remit worker")
"""Started in the background and stopped at the end of the page."""
INSTALLERS = {
    "make": "its target is looked up in the Makefile",
    "pip": "its extra is looked up in pyproject.toml",
    "npm": "installs packages of others",
}
TESTED_ELSEWHERE = {"remit demo": "tests/integration/test_demo.py", "temporal server start-dev": "tests/support/temporal_server.py"}
BOARD_GUIDES = frozenset({"take-a-task-through", "parallel-tasks", "research-plan-implement", "implement-a-plan", "keep-a-board"})
SERVER_GUIDES = frozenset({"serve", "mcp", "call-remit-by-http", "watch-remit", "coding-agents", "review-a-change", "review-and-commit"})
"""Guides that take longest: they run apart from the others."""
YES = ("remit trust", "remit init", "remit install claude", "remit install codex", "remit install opencode", "remit install claude --undo")
"""Asks at a terminal; the test answers with `--yes`."""


@dataclass(frozen=True)
class Part:
    """A block or a hidden command of a document."""

    document: Path
    line: int
    kind: str
    note: str
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Commands with the output shown below each."""
        text = self.text.replace("\\\n", "")
        if self.language != "console":
            return [(line, "") for line in text.splitlines() if line.strip() and not line.startswith("#")]
        pieces = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)[1:]
        return list(zip(pieces[::2], pieces[1::2], strict=True))


def parts(document: Path) -> list[Part]:
    text = document.read_text()
    found = []
    for match in PART.finditer(text):
        line = text[: match.start()].count("\n") + 1
        if match["hidden"]:
            found.append(Part(document, line, "", "", "sh", match["hidden"]))
        else:
            found.append(Part(document, line, match["kind"] or "", match["note"] or "", match["language"], match["text"]))
    return found


PARTS = {document: parts(document) for document in DOCUMENTS}


def is_run(part: Part) -> bool:
    return part.language in COMMAND_LANGUAGES and part.kind == ""


def in_documents(is_selected: Callable[[str], bool]) -> pytest.MarkDecorator:
    """A parametrised test over the documents with commands that are run, selected by their name."""
    paths = {document.relative_to(ROOT).as_posix(): document for document, all_parts in PARTS.items() if any(map(is_run, all_parts))}
    return pytest.mark.parametrize("document", [pytest.param(paths[name], id=name) for name in paths if is_selected(paths[name].stem)])


def simple_commands(line: str) -> list[list[str]]:
    """The commands between shell operators."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    found: list[list[str]] = [[]]
    for token in lexer:
        if set(token) <= set("();<>|&"):
            found.append([])
        else:
            found[-1].append(token)
    return [message for message in found if message]


@dataclass
class Shell:
    """A project with a terminal: commands of remit run in this process, others in bash."""

    folder: Path
    environment: dict[str, str]
    ports: dict[str, str]
    variables: list[str] = field(default_factory=list)
    servers: "list[subprocess.Popen[str]]" = field(default_factory=list)
    background: "list[tuple[str, subprocess.Popen[str]]]" = field(default_factory=list)

    def run(self, command: str) -> tuple[int, str]:
        for documented, real in self.ports.items():
            command = command.replace(documented, real)
        if re.search(r"\bSESSION\b|sess_…", command):
            command = re.sub(r"\bSESSION\b|sess_…", self.session(), command)
        command = command.replace("~/", f"{self.environment['HOME']}/")
        if command.partition(" #")[0].strip() in YES:
            command = f"{command.partition(' #')[0].strip()} --yes"
        if command.startswith(SERVERS):
            return self.start_server(command)
        if command.rstrip().endswith("&"):
            self.background.append((command, self.start(command.rstrip().rstrip("&"))))
            return 0, ""
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self.environment[name] = value
            return 0, ""
        if re.match(r"[A-Z_]+=", command):
            self.variables.append(command)
        return self.run_one(command)

    def run_one(self, command: str) -> tuple[int, str]:
        first, *others = simple_commands(command)
        model = {"REMIT_MODEL": "scripted"} if "remit ask" in command else {}
        if not others and first[0] == "remit" and first[1] != "mcp" and not re.search(r"[$`<>]", command.partition(" #")[0]):
            done = cli.run(*first[1:], cwd=self.folder, env=self.environment | model)
            return done.code, done.stdout or done.stderr
        return self.bash(command, self.environment | model)

    def bash(self, command: str, environment: dict[str, str]) -> tuple[int, str]:
        place = Path(self.environment["HOME"], "folder")
        script = "\n".join([*self.variables, command, "code=$?", f"pwd > {shlex.quote(str(place))}", "exit $code"])
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        done = subprocess.run(["bash", "-c", script], cwd=self.folder, env=environment, timeout=100, check=False, **streams)
        if place.exists():
            self.folder = Path(place.read_text().strip())
            place.unlink()
        return done.returncode, done.stdout or done.stderr

    def start(self, command: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def start_server(self, command: str) -> tuple[int, str]:
        process = self.start(command)
        self.servers.append(process)
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                return 0, "".join(lines)
        return process.wait(), "".join(lines)

    def session(self) -> str:
        listed = cli.run("history", "--json", "--limit", "1", cwd=self.folder, env=self.environment).json()
        return str(listed["delegations"][0]["session_id"])

    def settle(self) -> None:
        """Wait for the background processes."""
        for command, process in self.background:
            output, _ = process.communicate(timeout=100)
            assert process.returncode == 0, f"{command}\n{output}"
        self.background.clear()

    def close(self) -> None:
        for process in [*self.servers, *(process for _, process in self.background)]:
            process.terminate()
        for process in [*self.servers, *(process for _, process in self.background)]:
            process.communicate(timeout=30)


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    """The URL of a scripted language model."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    address: list[str] = []

    def answer(request: ModelRequest) -> Say:
        return Say(valid_return(request) if "sess_" in request.text else "It is as you say.")

    async def serve() -> None:
        async with ScriptedModels([Reply(answer)]) as server:
            address.append(server.openai_url)
            ready.set()
            await stop.wait()

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait()
    yield address[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("template"))


@pytest.fixture
def shell(template: Path, model: str, tmp_path: Path, state_home: Path, request: pytest.FixtureRequest) -> Iterator[Shell]:
    document: Path = request.getfixturevalue("document")
    home = shutil.copytree(template / "home", tmp_path / "home")
    folder = shutil.copytree(template / "shop", home / "project")
    with socket.socket() as http, socket.socket() as mcp:
        http.bind(("127.0.0.1", 0))
        mcp.bind(("127.0.0.1", 0))
        ports = {"7411": str(http.getsockname()[1]), "8791": str(mcp.getsockname()[1])}
    environment = {
        "PATH": f"{template / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "COLUMNS": "100",
        "LANG": "C.UTF-8",
        "XDG_STATE_HOME": str(state_home),
        "XDG_CACHE_HOME": os.environ["XDG_CACHE_HOME"],
        "PYTHONDONTWRITEBYTECODE": "1",
        "REMIT_SERVE__HTTP": f"127.0.0.1:{ports['7411']}",
        "EXAMPLES": str(ROOT / "docs/examples"),
        "REMIT_MODELS__SCRIPTED": f'{{kind = "openai", url = "{model}", model = "scripted"}}',
        "OPENAI_API_KEY": "any",
        "ANTHROPIC_API_KEY": "any",
    }
    commands = " ".join(command for part in PARTS[document] if is_run(part) for command, _ in part.commands)
    if not re.search(r"remit (trust|init)", commands):
        environment["REMIT_TRUST"] = "1"
    opened = Shell(folder, environment, ports)
    yield opened
    opened.close()


def check(part: Part, command: str, documented: str, shell: Shell) -> None:
    bare = command.partition(" #")[0].strip()
    if bare in TESTED_ELSEWHERE or is_installer(bare):
        return
    code, output = shell.run(command)
    expected = re.search(r"# .*\bexit code (\d+)", command)
    assert code == int(expected[1] if expected else 0), f"{part.place}: {command}\nexit code {code}\n{output}"
    if part.language == "console" and documented.strip():
        assert re.fullmatch(pattern(documented, shell), output.strip()), (
            f"{part.place}: {command}\n--- shown\n{documented}\n--- printed\n{output}"
        )


def is_installer(command: str) -> bool:
    program, *rest = shlex.split(command)
    if program == "make":
        assert re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
    if program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        for named in re.findall(r"remit\[([\w,]+)\]", command):
            assert set(named.split(",")) <= extras.keys(), command
    return program in INSTALLERS


def pattern(documented: str, shell: Shell) -> str:
    """A regular expression: seconds, column widths, the folder, and omitted parts may differ."""
    for name, real in (*shell.ports.items(), ("~/project", str(shell.folder))):
        documented = documented.replace(name, real)
    lines = []
    for line in documented.strip().splitlines():
        if line.strip() == "…":
            lines.append(r"(?s:.*)")
            continue
        text = re.escape(line.rstrip()).replace("…", ".*")
        text = re.sub(r"\d+(\\\.\d+)?\\ s\b", r"\\d+(\\.\\d+)?\\ s", text)
        lines.append(re.sub(r"(\\ ){2,}", r" +", text) + " *")
    return "\n".join(lines)


def run_document(document: Path, shell: Shell) -> None:
    for part in PARTS[document]:
        if part.kind == "project" or part.note.startswith("docs/examples/agents/"):
            path = shell.folder / (part.note if part.kind == "project" else f".remit/agents/{Path(part.note).name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(part.text)
        elif is_run(part):
            for command, documented in part.commands:
                check(part, command, documented, shell)
            shell.settle()
