"""Python agent files of a project: listing never imports them, and only approved content runs."""

import asyncio
import importlib.util
import os
import py_compile
import re
import threading
import time
from pathlib import Path

import pytest

from remit import Remit, RemitError
from remit.agents.directory import Directory
from remit.agents.python_files import FolderDescription, describe_project
from support import cli
from support.pace import allowed
from support.witness import LoopWatch

LEAVES_A_TRACE = """
import os, pathlib
pathlib.Path(os.environ.get("TRACE") or {trace!r}).open("a").write(f"{{os.getpid()}}\\n")
from remit import agent

@agent("here")
async def here(n: int) -> int:
    "Adds one."
    return n + 1

@agent("on.thread")
def on_thread(n: int) -> int:
    return n + 2

@agent("apart", isolation="process")
def apart(n: int) -> int:
    return n + 3
"""
HOSTILE = {
    "endless": "while True: pass",
    "raises": "raise ValueError('no such thing')",
    "exits": "import os; os._exit(0)",
    "leaves": "raise SystemExit(3)",
    "prints": "import os\nfor _ in range(25_600): os.write(1, b'x' * 4096)\nfrom remit import agent\n@agent\nasync def loud(): return 1\n",
    "forks": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)",
}


def project(root: Path, **files: str) -> Path:
    folder = root / ".remit" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    return root


def imports(trace: Path) -> list[str]:
    return trace.read_text().split() if trace.exists() else []


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def test_listing_describes_a_file_once_in_a_child_process_without_import(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    project(tmp_path, mine=LEAVES_A_TRACE.format(trace=str(trace)))
    listed = cli.run_json("agents", cwd=tmp_path)
    assert {"here", "on.thread", "apart"} <= {one["name"] for one in listed["agents"]}
    for command in (("agents", "here"), ("doctor",), ("roles",), ("policy", "check")):
        assert cli.run(*command, cwd=tmp_path).code == 0, command
    (only,) = imports(trace)
    assert int(only) != os.getpid()


async def test_file_is_imported_when_its_agent_is_delegated_to(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    project(tmp_path, mine=LEAVES_A_TRACE.format(trace=str(trace)))
    async with Remit.open(tmp_path) as remit:
        assert str(os.getpid()) not in imports(trace)
        assert (await remit.delegate("apart", n=1)).data == 4
        assert str(os.getpid()) not in imports(trace)
        assert (await remit.delegate("here", n=1)).data == 2
        assert (await remit.delegate("on.thread", n=1)).data == 3
        assert imports(trace).count(str(os.getpid())) == 1


def test_files_that_fail_at_import_are_reported_and_block_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMIT_DESCRIBE_SECONDS", "1")
    project(tmp_path, fine="from remit import agent\n@agent\nasync def fine(): return 1\n", **HOSTILE)
    began = time.monotonic()
    listed = cli.run_json("agents", cwd=tmp_path)
    looked_at = cli.run("doctor", cwd=tmp_path)
    done = cli.run("delegate", "worker.list_files", cwd=tmp_path)
    assert time.monotonic() - began < allowed(5.0)
    assert (looked_at.code, done.code) == (0, 0), done.stderr
    assert {"fine", "loud"} <= {one["name"] for one in listed["agents"]}
    named = {Path(problem.partition(":")[0].partition(" (line")[0]).stem for problem in listed["problems"]}
    assert named == HOSTILE.keys() - {"prints", "forks"}, listed["problems"]
    for problem in listed["problems"]:
        assert problem in looked_at.stdout
        assert problem in done.stderr


async def test_content_changed_after_approval_does_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    project(tmp_path, mine=LEAVES_A_TRACE.format(trace=str(trace)))
    async with Remit.open(tmp_path) as remit:
        known = len(imports(trace))
        project(tmp_path, mine=LEAVES_A_TRACE.format(trace=str(tmp_path / "evil")))
        for name in ("here", "on.thread"):
            refused = await remit.delegate(name, n=1)
            assert refused.errors[0].code == "NOT_TRUSTED", refused
        # The fork server may have preloaded the approved content; in that case the approved content runs.
        apart = await remit.delegate("apart", n=1)
        assert apart.data == 4 or "changed after it was approved" in apart.errors[0].message
        assert not (tmp_path / "evil").exists()
        assert known <= len(imports(trace)) + 1


async def test_bytecode_in_a_clone_is_not_run(tmp_path: Path) -> None:
    project(tmp_path, mine="import pathlib\nfrom remit import agent\n@agent\nasync def mine(): return 'source'\n")
    folder = tmp_path / ".remit" / "agents"
    other = tmp_path / "other.py"
    other.write_text("import pathlib\nfrom remit import agent\n@agent\nasync def mine(): return 'bytecode'\n")
    shipped = importlib.util.cache_from_source(str(folder / "mine.py"))
    py_compile.compile(str(other), shipped, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    async with Remit.open(tmp_path) as remit:
        assert (await remit.delegate("mine")).data == "source"


def describe(root: Path, *, approved: bool) -> tuple[FolderDescription, Directory]:
    found = describe_project(root / ".remit", lambda path, data: approved, 30.0)
    directory = Directory(lambda agent: agent)
    directory.load_files(found)
    directory.list_unapproved(found)
    return found, directory


def test_unapproved_file_is_listed_from_its_source_and_never_loaded(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    project(tmp_path, mine=LEAVES_A_TRACE.format(trace=str(trace)), huge="@agent('a')\n" + "(" * 5000, wrong="\0")
    found, directory = describe(tmp_path, approved=False)
    assert [one.spec.name for one in found.unapproved] == ["here", "on.thread", "apart"]
    listed = directory.find("here")
    assert listed is not None
    with pytest.raises(RemitError) as refused:
        listed.check({"n": 1})
    assert refused.value.code == "NOT_TRUSTED"
    assert not imports(trace)


def test_unapproved_file_does_not_replace_another_agent(tmp_path: Path) -> None:
    text = "from remit import agent\n" + "".join(f"@agent({name!r})\ndef f(): ...\n" for name in ("planner", "worker.read_file", "mine"))
    project(tmp_path, clone=text)
    _, directory = describe(tmp_path, approved=False)
    assert directory.registered() == ("mine",)


def test_descriptions_are_private_and_stored_outside_the_project(tmp_path: Path) -> None:
    project(tmp_path, fine="from remit import agent\n@agent\nasync def fine(): return 1\n")
    cli.run_json("agents", cwd=tmp_path)
    (kept,) = (Path(os.environ["XDG_CACHE_HOME"]) / "remit" / "descriptions").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700


def test_api_keys_are_hidden_from_a_file_while_it_is_described(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    project(tmp_path, keys="import os\nfrom remit import agent\n@agent(description=os.environ['OPENAI_API_KEY'])\nasync def keys(): ...\n")
    (described,) = (one for one in cli.run_json("agents", cwd=tmp_path)["agents"] if one["name"] == "keys")
    assert described["description"] == "hidden"


async def test_wrong_parameters_are_refused_without_import_if_names_or_plain_types_show_it(tmp_path: Path) -> None:
    function = (
        "def mine(n: int, note: str = '', names: list[str] = (), code: Annotated[int, BeforeValidator(lambda text: int(text, 16))] = 0)"
    )
    imports = "from typing import Annotated\nfrom pydantic import BeforeValidator\nfrom remit import agent\n"
    project(tmp_path, mine=f"{imports}@agent('mine', isolation='process')\n{function} -> int: return n + code\n")
    async with Remit.open(tmp_path) as remit:
        mine = remit.directory.find("mine")
        assert mine is not None
        assert mine.check({"n": "7"}) == {"n": "7"}
        for given, fault in (
            ({"m": 1}, "n: it is required"),
            ({"n": 1, "notes": ""}, "no such parameter (did you mean note?)"),
            ({"n": 1, "names": "a"}, "names must be a valid list, not 'a'"),
        ):
            with pytest.raises(RemitError, match=re.escape(fault)):
                mine.check(given)
        refused = await remit.delegate("mine", n="x")
        assert (refused.stop_reason, refused.errors[0].code) == ("refused", "INVALID_PARAMETERS")
        assert "n must be a valid integer, unable to parse string as an integer, not 'x'" in refused.errors[0].message
        assert (await remit.delegate("mine", n=1, code="ff")).data == 256
        done = await remit.delegate("mine", n=1, names=[{}])
        assert (done.status, done.errors[0].code) == ("failed", "INVALID_PARAMETERS"), "found where the file is imported"


SLOW_TO_IMPORT = """
import os, time
from remit import agent

if os.environ["SOME_KEY"] != "hidden":  # not while it is described
    time.sleep(60)

@agent("slow")
async def slow(n: int) -> int:
    return n

@agent("slow.on_thread")
def on_thread(n: int) -> int:
    return n
"""


@pytest.mark.parametrize("name", ["slow", "slow.on_thread"])
async def test_import_that_does_not_end_meets_the_deadline_and_blocks_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("SOME_KEY", "a key")
    project(tmp_path, slow=SLOW_TO_IMPORT)
    async with Remit.open(tmp_path) as remit, LoopWatch() as loop:
        before = threading.active_count()
        for done in await asyncio.gather(*(remit.delegate(name, n=number, timeout=1) for number in range(8))):
            assert (done.status, done.stop_reason) == ("partial", "deadline")
        assert threading.active_count() - before < 8, "one import for all"
        assert (await remit.delegate(name, n="x")).errors[0].code == "INVALID_PARAMETERS"
    assert loop.held < 5
