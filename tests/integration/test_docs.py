"""The documents say what is so: examples run, code is that of the files, tables are those of the program, links lead somewhere."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from forking import LOADED, run
from remit import Remit, Return
from remit.cli.exits import MEANINGS
from remit.core.context import DelegationFacts
from remit.core.errors import CODES
from remit.core.events import STEPS, EventKind
from remit.core.request import Request
from remit.core.result import StopReason
from remit.core.settings import DEFAULT_TIMEOUTS, Settings
from remit.stores import SqliteStore
from remit.system.settings_files import describe
from support.cli import every_command
from support.pace import wait_until

pytestmark = pytest.mark.timeout(600)
"""Its fixture runs every example, dozens of processes: on a busy machine that takes minutes."""
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
AGENT_FILES = sorted((EXAMPLES / "agents").glob("*.py"))
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
SCRIPTS = sorted(path for path in EXAMPLES.glob("*.py") if not path.name.startswith("test_"))
BLOCK = re.compile(
    r"(?:^<!-- (?P<kind>file|output): (?P<path>\S+) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
OF_EXAMPLES = ("remit.testing.models", "remit.models.stream", "pydantic_ai.models.openai", "pydantic_ai.models.anthropic")
"""What many of them import."""
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]+)(?:#[^)\s]*)?\)")

in_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


def table(document: Path, heading: str = "") -> list[list[str]]:
    """The rows of the first table below a heading, without its head; code marks taken off."""
    text = document.read_text()
    if heading:
        text = text.partition(f"\n{heading}\n")[2]
        assert text, f"{document.name} has no {heading}"
    rows = re.search(r"^\|.*\n\|[-| ]+\|\n((?:\|.*\n)+)", text, flags=re.MULTILINE)
    assert rows is not None
    return [[cell.strip().replace("`", "") for cell in row.strip("|").split(" | ")] for row in rows[1].splitlines()]


def run_script(script: Path, folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    (folder / "README.md").write_text("one two three\n")
    return run([str(script), *arguments], folder, loaded=(*LOADED, *OF_EXAMPLES), timeout=180)  # dozens of them, on whatever machine


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each example prints, run in a folder of its own; several at once, as most of them wait for something."""
    folders = [tmp_path_factory.mktemp(script.stem) for script in SCRIPTS]
    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(run_script, SCRIPTS, folders))
    assert {script.name: ran.stderr for script, ran in zip(SCRIPTS, runs, strict=True) if ran.returncode} == {}
    return {script.relative_to(ROOT).as_posix(): ran.stdout for script, ran in zip(SCRIPTS, runs, strict=True)}


# ---- examples


def test_every_example_runs(outputs: dict[str, str]) -> None:
    assert outputs["docs/examples/first_agent.py"] == "completed: README.md has 3 words.\n"
    assert outputs["docs/examples/own_store.py"] == "True True\n"


@in_document
def test_every_python_block_matches_its_file(document: Path) -> None:
    for block in BLOCK.finditer(document.read_text()):
        if block["kind"] == "file":
            assert block["text"] == (ROOT / block["path"]).read_text(), f"{document.name}: {block['path']}"
        else:
            assert block["language"] not in ("python", "py"), f"{document.name}: a Python block names no file:\n{block['text'][:200]}"


def without_seconds(text: str) -> str:
    """Measured seconds, those with a tenth, depend on the machine."""
    return re.sub(r"\d+\.\d s\b", "some s", text)


@in_document
def test_every_shown_output_is_the_real_one(document: Path, outputs: dict[str, str]) -> None:
    for block in BLOCK.finditer(document.read_text()):
        if block["kind"] == "output":
            assert without_seconds(block["text"]) == without_seconds(outputs[block["path"]]), f"{document.name}: {block['path']}"


def test_every_example_is_used_in_a_document() -> None:
    shown = {block["path"] for document in DOCUMENTS for block in BLOCK.finditer(document.read_text()) if block["kind"] == "file"}
    assert shown == {path.relative_to(ROOT).as_posix() for path in EXAMPLES.rglob("*.py")}


def test_killed_orchestrator_resumes_as_documented(tmp_path: Path) -> None:
    """S8: finished children are not run again."""
    crashed = run_script(EXAMPLES / "resumable.py", tmp_path, "crash")
    assert crashed.returncode == -signal.SIGKILL
    assert crashed.stdout == "fetched page 1\nfetched page 2\n"
    again = run_script(EXAMPLES / "resumable.py", tmp_path)
    assert again.stdout == "fetched page 3\nresumed: 3 pages in attempt 2.\n", again.stderr


# ---- the tutorial


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    """The tutorial's folder, with all of its agents."""
    (tmp_path / "one.txt").write_text("Dear reader, all is well.\n")
    (tmp_path / "two.txt").write_text("Nothing more to tell.\n")
    folder = tmp_path / ".remit" / "agents"
    folder.mkdir(parents=True)
    for file in AGENT_FILES:
        (folder / file.name).write_text(file.read_text())
    return tmp_path


def test_example_of_a_test_passes(letters: Path) -> None:
    test = letters / "tests" / "test_words.py"
    test.parent.mkdir()
    test.write_text((EXAMPLES / "test_words.py").read_text())
    plugins = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # of others that happen to be installed here, which take seconds
    ran = run(["-m", "pytest", "-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto"], letters, env={**os.environ, **plugins})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout


def remit_command(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run(["-m", "remit.cli.main", *arguments, "--root", str(folder)], folder)


async def test_tutorial_agents_answer_as_documented(letters: Path) -> None:
    async with Remit.open(letters) as remit:
        assert remit.directory.problems == []
        assert (await remit.delegate("words.count", path="one.txt")).data == 5
        folder = await remit.delegate("words.folder")
        assert folder.summary == "Counted 2 files. They hold 9 words in all."
        assert [(a.path, a.evidence) for a in folder.artifacts] == [("words.md", "checked")]
        slow: Return = await remit.delegate("slow")
        assert (slow.status, slow.errors[0].code, slow.artifacts[0].path) == ("partial", "TIMEOUT", "slow.txt")
        # its deadline counts from the moment it was accepted, its duration from when it began: under load a little later
        assert 2.5 <= slow.metadata.duration_seconds < 4.5


def test_tutorial_commands_exit_with_the_documented_codes(letters: Path) -> None:
    assert remit_command(letters, "agents").returncode == 0
    assert remit_command(letters, "delegate", "words.count", "path=one.txt").returncode == 0
    assert remit_command(letters, "delegate", "words.count", "pth=one.txt").returncode == 5
    assert remit_command(letters, "delegate", "words.cuont", "path=one.txt").returncode == 5
    assert remit_command(letters, "show", "last").returncode == 0


def test_tutorial_steps_survive_kill_9(letters: Path) -> None:
    command = [sys.executable, "-m", "remit.cli.main", "delegate", "steps.all", "steps=12", "--root", str(letters)]
    orchestrator = subprocess.Popen(command, cwd=letters, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: _lines(letters / "steps.txt") >= 4)
    orchestrator.kill()
    orchestrator.wait()
    before = _lines(letters / "steps.txt")
    recovered = remit_command(letters, "recover")
    assert recovered.returncode == 0, recovered.stdout + recovered.stderr
    numbers = (letters / "steps.txt").read_text().split()
    assert set(numbers) == {str(n) for n in range(1, 13)}
    assert len(numbers) <= 13, "only the step that was under way may have run twice"
    assert 4 <= before < 12
    store = SqliteStore(letters / ".remit" / "remit.db")
    assert store.live() == []
    store.close()


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


# ---- the reference


def test_exactly_the_settings_are_documented_with_defaults() -> None:
    documented = {row[0]: row[1] for row in table(ROOT / "docs/reference/settings.md")}
    known: dict[str, str] = {"slots_per_agent.NAME": "none", "agents.NAME.KEY": "none", "roles.NAME": "none"}
    known |= {"models.NAME.KEY": "none", "prices.NAME.KEY": "none"}
    for key, value, _ in describe(Settings()):
        name, _, rest = key.partition(".")
        match name:
            case "timeouts":
                known[f"timeouts.NAME.{rest.rpartition('.')[2]}"] = "see below"
            case "routing":
                known["routing.COMMAND"] = "see below"
            case _:
                known[key] = _shown(value)
    assert documented == known


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def test_every_default_timeout_is_documented() -> None:
    rows = table(ROOT / "docs/reference/settings.md", "## Timeouts")
    assert {name: (float(default), float(most)) for name, default, most in rows} == {
        name: (limits.default_seconds, limits.maximum_seconds) for name, limits in DEFAULT_TIMEOUTS.items()
    }


def test_exactly_the_commands_and_options_are_documented() -> None:
    text = (ROOT / "docs/reference/cli.md").read_text()
    sections = re.split(r"^## `remit (\w+)[^`]*`\n", text, flags=re.MULTILINE)[1:]
    documented = {
        name: set(re.findall(r"^\| `(--[\w-]+)`", body, flags=re.MULTILINE))
        for name, body in zip(sections[::2], sections[1::2], strict=True)
    }
    commands = every_command()
    shared = {"--root", "--json", "--trust", "--help"}
    known = {name: {option for p in command.params for option in p.opts if option.startswith("--")} for name, command in commands.items()}
    assert all({"--root", "--json", "--trust"} <= options for options in known.values())
    assert documented == {name: options - shared for name, options in known.items()}


def test_reference_overview_lists_every_command() -> None:
    rows = table(ROOT / "docs/reference/cli.md", "## At a glance")
    assert {row[0].split()[1] for row in rows} == set(every_command())


def test_every_exit_code_is_documented() -> None:
    rows = table(ROOT / "docs/reference/cli.md", "## Exit codes")
    assert {int(code): meaning for code, meaning in rows} == {code.value: meaning for code, meaning in MEANINGS.items()}


def test_every_error_code_stop_reason_event_and_step_is_documented() -> None:
    reference = ROOT / "docs/reference"
    assert {row[0] for row in table(reference / "errors.md")} == CODES
    assert {row[0] for row in table(reference / "return.md", "## Stop reasons and the registry's state")} == set(StopReason)
    assert {row[0] for row in table(reference / "events.md")} == set(EventKind)
    assert [row[0] for row in table(reference / "events.md", "## Steps")] == list(STEPS)


def test_every_option_of_a_call_is_documented() -> None:
    rows = table(ROOT / "docs/reference/api.md", "## What can be asked")
    assert {row[0] for row in rows} == set(Request.__dataclass_fields__) - {"agent", "checked"}


def test_every_method_of_remit_and_of_the_context_is_documented() -> None:
    from remit import BlockingContext, Context

    documented = set(re.findall(r"`([a-z_]+)[`(]", (ROOT / "docs/reference/api.md").read_text()))
    for kind in (Remit, Context, DelegationFacts):
        missing = {name for name in vars(kind) if not name.startswith("_")} - documented
        assert missing - {"open", "backend", "unawaited"} == set()
    assert {n for n in vars(Context) if n[0] != "_"} - {"unawaited"} == {n for n in vars(BlockingContext) if n[0] != "_"} - {
        "context",
        "wait",
    }


@in_document
def test_every_link_target_exists(document: Path) -> None:
    broken = [link for link in LINK.findall(document.read_text()) if not (document.parent / link).exists()]
    assert broken == []


def test_every_document_is_reachable_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        document = waiting.pop()
        if document not in reached:
            reached.add(document)
            linked = [(document.parent / link).resolve() for link in LINK.findall(document.read_text())]
            waiting += [path for path in linked if path.suffix == ".md"]
    assert set(DOCUMENTS) <= reached


@in_document
def test_every_named_module_exists(document: Path) -> None:
    text, sources = document.read_text(), ROOT / "src/remit"
    packages = "|".join(path.name for path in sources.iterdir() if path.is_dir())
    for name in set(re.findall(rf"`(remit\.(?:{packages})\.[a-z_]+)", text)):
        assert importlib.util.find_spec(name) is not None, f"{document.name}: {name}"
    for name in set(re.findall(rf"`((?:{packages})/[a-z0-9_/]+\.py)`", text)):
        assert (sources / name).exists(), f"{document.name}: {name}"


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_architecture_is_short_and_names_every_package() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.splitlines()) <= 200
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", text))
    assert [name for name in sorted(named) if not (ROOT / "src/remit" / name).exists() and not (ROOT / name).exists()] == []
    listed = {row[0] for row in table(ROOT / "ARCHITECTURE.md", "## Packages")}
    assert listed == {path.parent.name for path in (ROOT / "src/remit").glob("*/__init__.py")} | {"app.py"}


def test_site_builds_without_broken_links_or_external_resources(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").rglob("*.md")))
    loaded = re.compile(r"""<(?:script|img|iframe)[^>]+src=["']?https?:|<link[^>]+href=["']?https?:""")
    assert not [page.name for page in pages if loaded.search(page.read_text())]


def test_every_guide_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    assert not [path.name for path in (ROOT / "docs/how-to").glob("*.md") if f"(how-to/{path.name})" not in index]
