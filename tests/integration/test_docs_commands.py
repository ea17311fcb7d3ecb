"""Every command that a document shows is run, in the order of the page, in a project of its own; the output that it shows is compared.

Comments of a document that its readers do not see:

- `<!-- project: PATH -->` before a block: a file of that project
- `<!-- run: COMMAND -->`: what the page takes for granted
- `<!-- not run: REASON -->` before a block: its commands are only checked against the command line

`# exit code 5` behind a command says that it ends with that code, not with 0. `…` in an output stands for any text, in a line of its own
for any lines. SESSION is the latest delegation. A coding agent is a program that answers as the real one does (`tests/real` runs those), a
language model is scripted.
"""

import asyncio
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from docs_project import make_project

from remit.cli.command_table import ALIASES
from remit.testing import ModelRequest, Reply, Say, ScriptedModels, valid_return
from support import cli

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")), *sorted((ROOT / "docs").rglob("*.md"))]
PART = re.compile(
    r"^<!-- run: (?P<hidden>[^\n]+?) -->$|(?:^<!-- (?P<kind>[a-z ]+): (?P<said>[^\n]+?) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
COMMAND_LANGUAGES = ("sh", "console")
DATA: dict[str, Callable[[str], Any]] = {"json": json.loads, "yaml": yaml.safe_load, "toml": tomllib.loads}
STAYING = ("remit serve", "remit worker", "remit mcp --http")
"""Started beside the others and stopped at the end of the page."""
INSTALLERS = {
    "make": "its target is looked up in the Makefile",
    "pip": "its extra is looked up in pyproject.toml",
    "npm": "installs packages of others",
}
ELSEWHERE = {"remit demo": "tests/integration/test_demo.py", "temporal server start-dev": "tests/support/temporal_server.py"}
ABSENT = "which is not an agent|was not found|has no server|is not set|set model|add model"
"""Problems of settings that are shown alone."""
YES = ("remit trust", "remit init", "remit install claude", "remit install codex", "remit install opencode", "remit install claude --undo")
"""Asks at a terminal; here it is answered with `--yes`."""


@dataclass(frozen=True)
class Part:
    """A block or a hidden command of a document."""

    document: Path
    line: int
    kind: str
    said: str
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"

    @property
    def commands(self) -> list[tuple[str, str]]:
        """Each with the output that is shown below it."""
        text = self.text.replace("\\\n", "")
        if self.language != "console":
            return [(line, "") for line in text.splitlines() if line.strip() and not line.startswith("#")]
        shown = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)[1:]
        return list(zip(shown[::2], shown[1::2], strict=True))


def parts(document: Path) -> list[Part]:
    text = document.read_text()
    found = []
    for match in PART.finditer(text):
        line = text[: match.start()].count("\n") + 1
        if match["hidden"]:
            found.append(Part(document, line, "", "", "sh", match["hidden"]))
        else:
            found.append(Part(document, line, match["kind"] or "", match["said"] or "", match["language"], match["text"]))
    return found


PARTS = {document: parts(document) for document in DOCUMENTS}
RUN = [
    document
    for document, all_parts in PARTS.items()
    if any(part.language in COMMAND_LANGUAGES and part.kind in ("", "project") for part in all_parts)
]


def is_run(part: Part) -> bool:
    return part.language in COMMAND_LANGUAGES and part.kind == ""


# ---- the rules


def test_every_block_is_tested_or_gives_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    count: Counter[str] = Counter()
    for part in [part for all_parts in PARTS.values() for part in all_parts]:
        assert part.kind in ("", "file", "output", "project", "not run"), f"{part.place}: {part.kind}"
        if part.kind == "not run":
            assert len(part.said) > 10, f"{part.place}: the reason is missing"
        elif part.kind == "":
            commands = [line for line in part.text.splitlines() if re.match(r"(\$ )?(remit|curl|pip|git|npm|make) ", line)]
            assert part.language in COMMAND_LANGUAGES or not commands, f"{part.place}: commands in a block of {part.language or 'text'}"
            assert part.language != "python", f"{part.place}: a Python block names its file"
        count[f"{part.language or 'text'}, {part.kind or 'run or checked'}"] += 1
    with capsys.disabled():
        print(f"\nblocks of the documents: {dict(sorted(count.items()))}")


@pytest.mark.parametrize(
    "part", [p for all_parts in PARTS.values() for p in all_parts if p.language in DATA and not p.kind], ids=lambda p: p.place
)
def test_data_blocks_are_well_formed_and_settings_are_known(part: Part, tmp_path: Path) -> None:
    DATA[part.language](part.text)
    if part.language == "toml":
        (tmp_path / "remit.toml").write_text(part.text)
        assert (done := cli.run("config", cwd=tmp_path)).code == 0, done.stderr
        problems = cli.run_json("agents", cwd=tmp_path)["problems"]
        assert [problem for problem in problems if not re.search(ABSENT, problem)] == []


def command_lines() -> Iterator[tuple[str, list[str]]]:
    for part in [part for all_parts in PARTS.values() for part in all_parts if part.language in COMMAND_LANGUAGES]:
        for command, _ in part.commands:
            for words in simple_commands(command):
                yield f"{part.place}: {command}", words
    for document in DOCUMENTS:
        text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
        for command in re.findall(r"(?<!`)`(remit [a-z][^`\n]*)`", text):
            with suppress(ValueError):  # a quotation mark that is left open
                yield f"{document.name}: {command}", shlex.split(command)


def simple_commands(line: str) -> list[list[str]]:
    """The commands between the operators of a shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, "#"
    found: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("();<>|&"):
            found.append([])
        else:
            found[-1].append(word)
    return [words for words in found if words]


def unknown_parts(lines: Iterable[tuple[str, list[str]]]) -> list[str]:
    """Of command lines with their places: those with a command or an option that remit does not have."""
    options = {name: {opt for parameter in command.params for opt in parameter.opts} for name, command in cli.every_command().items()}
    own = {"about", "fix"}  # commands of files, in a guide and in a docstring
    wrong = []
    for place, (program, *words) in lines:
        name = words[0] if words else ""
        if program != "remit" or not re.fullmatch(r"[a-z]+", name) or name in own | ALIASES.keys():
            continue
        given = {word.partition("=")[0] for word in words[1:] if re.match(r"--[a-z]", word)} - {"--help"}
        if name not in options or not given <= options[name]:
            wrong.append(place)
    return wrong


def test_documented_command_lines_use_existing_commands_and_options() -> None:
    assert unknown_parts(command_lines()) == []


def advised() -> Iterator[tuple[str, list[str]]]:
    """Command lines in the messages of remit: in backticks, or as the whole of what is to be done next."""
    for path in (ROOT / "src/remit").rglob("*.py"):
        text = path.read_text()
        for line in re.findall(r"`(remit [a-z][^`\n]*)`", text) + re.findall(r"(?:Next|next|Then|approve): (remit [a-z][^\"\n]*)", text):
            yield f"{path.relative_to(ROOT)}: {line}", re.sub(r"[\"'.;,)]", " ", line).split()


def test_command_lines_in_messages_use_existing_commands_and_options() -> None:
    found = list(advised())
    assert len(found) > 100
    assert unknown_parts(found) == []


def test_tests_named_by_documents_exist() -> None:
    for command, file in ELSEWHERE.items():
        assert command.split()[-1] in (ROOT / file).read_text(), command


# ---- the run


@dataclass
class Shell:
    """A project with a terminal: commands of remit run in this process, others in bash."""

    folder: Path
    environment: dict[str, str]
    ports: dict[str, str]
    variables: list[str] = field(default_factory=list)
    staying: "list[subprocess.Popen[str]]" = field(default_factory=list)
    waiting: "list[tuple[str, subprocess.Popen[str]]]" = field(default_factory=list)

    def run(self, command: str) -> tuple[int, str]:
        for shown, real in self.ports.items():
            command = command.replace(shown, real)
        if re.search(r"\bSESSION\b|sess_…", command):
            command = re.sub(r"\bSESSION\b|sess_…", self.session(), command)
        command = command.replace("~/", f"{self.environment['HOME']}/")
        if command.partition(" #")[0].strip() in YES:
            command = f"{command.partition(' #')[0].strip()} --yes"
        if command.startswith(STAYING):
            return self.stay(command)
        if command.rstrip().endswith("&"):
            self.waiting.append((command, self.start(command.rstrip().rstrip("&"))))
            return 0, ""
        if command.startswith("export "):
            name, _, value = command.removeprefix("export ").partition("=")
            self.environment[name] = value
            return 0, ""
        if re.match(r"[A-Z_]+=", command):
            self.variables.append(command)
        if re.search(r"remit .* (\||&&) |\| remit ", command):
            return self.run_each(command)
        return self.run_one(command)

    def run_each(self, command: str) -> tuple[int, str]:
        """A pipeline, or commands of which each runs if the one before it succeeded."""
        code, said = 0, ""
        for operator, one in re.findall(r"(^|\| | && )(.+?)(?= \| | && |$)", command.partition(" #")[0]):
            code, said = self.run_one(one.strip(), stdin=said if operator.strip() == "|" else "")
            if code:
                break
        return code, said

    def run_one(self, command: str, stdin: str = "") -> tuple[int, str]:
        words = simple_commands(command)
        if len(words) == 1 and words[0][0] == "remit" and words[0][1] != "mcp" and not re.search(r"[$`<>]", command.partition(" #")[0]):
            model = {"REMIT_MODEL": "scripted"} if words[0][1] in ("ask", "chat") else {}
            done = cli.run(*words[0][1:], cwd=self.folder, env=self.environment | model, stdin=stdin)
            return done.code, done.stdout or done.stderr
        return self.bash(command, stdin)

    def bash(self, command: str, stdin: str = "") -> tuple[int, str]:
        place = Path(self.environment["HOME"], "folder")
        script = "\n".join([*self.variables, command, "code=$?", f"pwd > {shlex.quote(str(place))}", "exit $code"])
        streams: dict[str, Any] = {"input": stdin, "capture_output": True, "text": True}
        done = subprocess.run(["bash", "-c", script], cwd=self.folder, env=self.environment, timeout=100, check=False, **streams)
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

    def stay(self, command: str) -> tuple[int, str]:
        process = self.start(command)
        self.staying.append(process)
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
        """Wait for what was put into the background."""
        for command, process in self.waiting:
            said, _ = process.communicate(timeout=100)
            assert process.returncode == 0, f"{command}\n{said}"
        self.waiting.clear()

    def close(self) -> None:
        for process in [*self.staying, *(process for _, process in self.waiting)]:
            process.terminate()
        for process in [*self.staying, *(process for _, process in self.waiting)]:
            process.communicate(timeout=30)


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    """The address of a language model that has an answer to everything."""
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
    shown = " ".join(command for part in PARTS[document] if is_run(part) for command, _ in part.commands)
    if not re.search(r"remit (trust|init)", shown):
        environment["REMIT_TRUST"] = "1"
    opened = Shell(folder, environment, ports)
    yield opened
    opened.close()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("document", RUN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_documented_commands_print_the_documented_output(document: Path, shell: Shell) -> None:
    for part in PARTS[document]:
        if part.kind == "project" or part.said.startswith("docs/examples/agents/"):
            path = shell.folder / (part.said if part.kind == "project" else f".remit/agents/{Path(part.said).name}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(part.text)
        elif is_run(part):
            for command, shown in part.commands:
                check(part, command, shown, shell)
            shell.settle()


def check(part: Part, command: str, shown: str, shell: Shell) -> None:
    bare = command.partition(" #")[0].strip()
    if bare in ELSEWHERE or is_installer(bare):
        return
    code, said = shell.run(command)
    expected = re.search(r"# .*\bexit code (\d+)", command)
    assert code == int(expected[1] if expected else 0), f"{part.place}: {command}\nexit code {code}\n{said}"
    if part.language == "console" and shown.strip():
        assert re.fullmatch(pattern(shown, shell), said.strip()), f"{part.place}: {command}\n--- shown\n{shown}\n--- printed\n{said}"


def is_installer(command: str) -> bool:
    program, *rest = shlex.split(command)
    if program == "make":
        assert re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
    if program == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        for named in re.findall(r"remit\[([\w,]+)\]", command):
            assert set(named.split(",")) <= extras.keys(), command
    return program in INSTALLERS


def pattern(shown: str, shell: Shell) -> str:
    """As a regular expression: seconds, widths of columns, the folder, and what is left out differ."""
    for name, real in (*shell.ports.items(), ("~/project", str(shell.folder))):
        shown = shown.replace(name, real)
    lines = []
    for line in shown.strip().splitlines():
        if line.strip() == "…":
            lines.append(r"(?s:.*)")
            continue
        text = re.escape(line.rstrip()).replace("…", ".*")
        text = re.sub(r"\d+(\\\.\d+)?\\ s\b", r"\\d+(\\.\\d+)?\\ s", text)
        lines.append(re.sub(r"(\\ ){2,}", r" +", text) + " *")
    return "\n".join(lines)
