"""Item 6: every attempt of the corpus fails, in bubblewrap and by Landlock alone, started by root and by an ordinary user."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from escape_stage import STACKS, offer_of, try_all, try_outside
from escapes import ATTEMPTS, Attempt

from remit.system.sandbox.recipes import node

SOURCE = Path(__file__).parents[2] / "src"
STRANGER = 61_234
TRIED = [attempt for attempt in ATTEMPTS if attempt.language != "javascript" or node() is not None]

each = pytest.mark.parametrize("attempt", TRIED, ids=lambda attempt: attempt.name)
each_stack = pytest.mark.parametrize("stack", STACKS)


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What there is to be got at."""
    folder = tmp_path_factory.mktemp("project")
    (folder / ".remit").mkdir()
    (folder / ".remit" / "remit.db").write_bytes(b"SQLite format 3")
    (folder / "secret.txt").write_text("geheim")
    (folder / "victim.txt").write_text("leave me alone")
    (folder / "outside").mkdir()
    shared = Path("/dev/shm") / f"remit-test-{os.getpid()}"
    shared.write_text("geheim")
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix, socket.socket(socket.AF_UNIX) as abstract:
        tcp.bind(("127.0.0.1", 0))
        place = Path(f"/tmp/remit-test-{os.getpid()}.sock")  # short: paths of sockets are limited
        unix.bind(str(place))
        abstract.bind(f"\0remit-test-{os.getpid()}")
        for one in (tcp, unix, abstract):
            one.listen(64)
        letters = Path(f"/tmp/remit-test-{os.getpid()}.letters")
        boxes = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]
        for box, name in zip(boxes, (str(letters), f"\0{letters}"), strict=True):
            box.bind(name)
        letters.chmod(0o777)
        victim = subprocess.Popen(["sleep", "300"], env={"REMIT_TEST_SECRET": "geheim", "PATH": os.environ["PATH"]})
        os.environ["REMIT_TEST_SECRET"] = "geheim"
        leaked = os.open(folder / "secret.txt", os.O_RDONLY)
        os.set_inheritable(leaked, True)
        yield {
            "secret": folder / "secret.txt",
            "victim_file": folder / "victim.txt",
            "project": folder,
            "outside": folder / "outside",
            "home": Path.home(),
            "shared": shared,
            "victim": victim.pid,
            "port": tcp.getsockname()[1],
            "unix": place,
            "abstract": f"remit-test-{os.getpid()}",
            "datagram": letters,
        }
        assert victim.poll() is None, "somebody killed it"
        victim.kill()
        victim.wait()
        os.close(leaked)
        del os.environ["REMIT_TEST_SECRET"]
        for box in boxes:
            box.close()
        for path in (shared, place, letters):
            path.unlink()


@pytest.fixture(scope="module")
def ours(facts: dict[str, Any]) -> dict[str, dict[str, str]]:
    """What each attempt did, started by whoever runs the tests."""
    found: list[dict[str, dict[str, str]]] = []
    trying = threading.Thread(target=lambda: found.append(asyncio.run(try_all(facts))))  # a loop of its own, beside that of the tests
    trying.start()
    trying.join()
    return found[0]


@pytest.fixture(scope="module")
def strangers(facts: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The same, started by an ordinary user who owns all that there is to be got at."""
    python = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")
    if os.geteuid() != 0 or python is None:
        pytest.skip("needs root, to become somebody else, and an interpreter that everybody can start")
    folder = tmp_path_factory.mktemp("strange")
    shutil.copytree(SOURCE, folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("escapes.py", "escape_stage.py"):
        shutil.copy(Path(__file__).with_name(name), folder / name)
    for path in (folder, facts["project"], *facts["project"].rglob("*")):
        os.chown(path, STRANGER, STRANGER)
    _open_up(folder)
    _open_up(facts["project"])
    libraries = [path for path in sys.path if path.endswith("-packages")]
    with subprocess.Popen(["sleep", "300"], user=STRANGER, env={"REMIT_TEST_SECRET": "geheim"}) as victim:
        ran = subprocess.run(
            [python, str(folder / "escape_stage.py"), json.dumps({**facts, "victim": victim.pid}, default=str)],
            user=STRANGER,
            group=STRANGER,
            extra_groups=[],
            cwd=folder,
            env={
                "PATH": "/usr/bin:/bin",
                "HOME": str(folder),
                "PYTHONPATH": ":".join([str(folder / "src"), *libraries]),
                "REMIT_TEST_SECRET": "geheim",
            },
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert victim.poll() is None, "somebody killed it"
        victim.kill()
    if "PermissionError" in ran.stderr and not ran.stdout:
        pytest.skip("our packages cannot be read by everybody")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)  # type: ignore[no-any-return]


def _open_up(folder: Path) -> None:
    for path in (folder, *folder.parents):
        if path.stat().st_mode & 0o001 == 0:
            path.chmod(path.stat().st_mode | 0o011)
        if path == Path("/tmp"):
            break


@each_stack
@each
def test_no_escape_succeeds(attempt: Attempt, stack: str, ours: dict[str, dict[str, str]]) -> None:
    said = ours[stack][attempt.name]
    assert "TRIED" in said, said
    assert "ESCAPED" not in said, said


@each_stack
def test_no_escape_of_an_ordinary_user_succeeds(stack: str, strangers: dict[str, dict[str, str]]) -> None:
    said = strangers[stack]
    assert [name for name, words in said.items() if "ESCAPED" in words] == []
    assert [name for name, words in said.items() if "TRIED" not in words and "Node" not in words] == []


def test_the_same_programs_succeed_with_no_sandbox_around_them(facts: dict[str, Any], ours: dict[str, Any], tmp_path: Path) -> None:
    """So that a mistake in a program does not look like safety."""
    (facts["project"] / "victim.txt").write_text("leave me alone")
    said = try_outside(facts, tmp_path)
    assert len(said) > 40
    gone = {"move a file in from outside"}  # another one of them removed it before
    if len(os.listdir(facts["home"])) < 2:
        gone.add("list the home folder")  # there is nothing in it that could be seen
    assert {name: words for name, words in said.items() if "ESCAPED" not in words and name not in gone} == {}


def test_both_stacks_are_what_they_are_said_to_be() -> None:
    assert offer_of("bubblewrap").stack.startswith("bubblewrap + Landlock")
    assert offer_of("landlock").stack.startswith("Landlock")
