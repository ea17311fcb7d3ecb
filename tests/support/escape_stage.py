"""Targets of the escape attempts, and the code that runs the attempts. Also a program, so that another user can run it.

`python escape_stage.py FACTS` reads the targets as JSON and prints the result of each attempt in each sandbox stack.
"""

import ast
import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.escapes import ATTEMPTS, BATCH, OWN, Attempt
from support.processes import all_pids
from support.sandboxes import Job, Limits, Offer, RunResult, probe, run

STACKS = ("bubblewrap", "landlock", "old landlock")
AT_ONCE = 4


@contextlib.contextmanager
def targets(folder: Path) -> Iterator[dict[str, Any]]:
    """Targets of the attacks, by the names that the attempts use."""
    (folder / ".remit").mkdir()
    (folder / ".remit" / "remit.db").write_bytes(b"SQLite format 3")
    (folder / "secret.txt").write_text("geheim")
    (folder / "victim.txt").write_text("leave me alone")
    (folder / "outside").mkdir()
    shared = Path("/dev/shm") / f"remit-test-{os.getpid()}"
    shared.write_text("geheim")
    with socket.socket() as tcp, socket.socket(socket.AF_UNIX) as unix, socket.socket(socket.AF_UNIX) as abstract:
        tcp.bind(("127.0.0.1", 0))
        place = Path(f"/tmp/remit-test-{os.getpid()}.sock")  # short: socket paths have a length limit
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
        try:
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
            assert victim.poll() is None, "an attempt killed the target process"
        finally:
            victim.kill()
            victim.wait()
            os.close(leaked)
            del os.environ["REMIT_TEST_SECRET"]
            for box in boxes:
                box.close()
            for path in (shared, place, letters):
                path.unlink()


def offer_of(stack: str) -> Offer:
    """Sandbox features of this machine, of one without bubblewrap, and of one that also has an older kernel."""
    offers = {
        "bubblewrap": probe(),
        "landlock": replace(probe(), bubblewrap=None),
        "old landlock": replace(probe(), bubblewrap=None, landlock=2),
    }
    return offers[stack]


async def sandboxed(
    code: str, stack: str = "bubblewrap", *, language: str = "python", out: Path | None = None, **given: Any
) -> tuple[RunResult, str, str]:
    """Exit status, stdout and stderr."""
    heard = {"stdout": b"", "stderr": b""}

    def hear(stream: str, data: bytes) -> None:
        heard[stream] += data

    with tempfile.TemporaryDirectory() as folder:
        ran = await run(
            Job(language=language, code=code, **{"limits": Limits(seconds=20), **given}),
            offer_of(stack),
            hear=hear,
            out=out or Path(folder) / "out",
        )
    return ran, heard["stdout"].decode("utf-8", "replace"), heard["stderr"].decode("utf-8", "replace")


def filled(attempt: Attempt, facts: dict[str, Any]) -> str:
    code = attempt.code
    for name, value in facts.items():
        code = code.replace("{" + name + "}", str(value))
    return code.replace("{{", "{").replace("}}", "}") if attempt.language == "python" else code


async def try_all(facts: dict[str, Any]) -> dict[str, dict[str, str]]:
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(stack: str, attempt: Attempt) -> dict[str, str]:
        async with at_once:
            files = {name: text.encode() for name, text in attempt.files.items()}
            given = {"language": attempt.language, "files": files, "hidden": (Path(facts["project"]),)}
            ran, stdout, stderr = await sandboxed(filled(attempt, facts), stack, **given)
        return {attempt.name: f"{stdout}\n{stderr}\n{ran}"}

    async def batch(stack: str) -> dict[str, str]:
        async with at_once:
            ran, stdout, stderr = await sandboxed(batched(facts), stack, hidden=(Path(facts["project"]),))
        assert ran.exit_code == 0, f"{stdout}\n{stderr}\n{ran}"
        return said_in(stdout)

    found: dict[str, dict[str, str]] = {}
    for stack in STACKS:
        single = [one(stack, attempt) for attempt in ATTEMPTS if is_single(attempt)]
        parts = await asyncio.gather(batch(stack), *single)
        found[stack] = {name: words for part in parts for name, words in part.items()}
    return found


def is_single(attempt: Attempt) -> bool:
    return attempt.alone or attempt.language != "python"


def batched(facts: dict[str, Any], only: Callable[[Attempt], bool] = lambda _: True) -> str:
    attempts = [(one.name, filled(one, facts)) for one in ATTEMPTS if not is_single(one) and only(one)]
    return BATCH.format(attempts=repr(attempts))


def said_in(printed: str) -> dict[str, str]:
    return dict(ast.literal_eval(line) for line in printed.splitlines())


def must_have_held(printed: str) -> None:
    """Check the output of the corpus in a container: every attempt ran and none escaped."""
    said = said_in(printed)
    assert len(said) > 80
    assert [name for name, words in said.items() if "TRIED" not in words] == []
    assert {name: words for name, words in said.items() if "ESCAPED" in words and name not in OWN} == {}


def try_outside(facts: dict[str, Any], folder: Path) -> dict[str, str]:
    """Run the programs that have `proves` without a sandbox; returns their output by name."""
    proving = [one for one in ATTEMPTS if one.proves]
    said = said_in(_bare([sys.executable, "-c", batched(facts, lambda one: one.proves)], folder))
    for attempt in filter(is_single, proving):
        program = {"python": [sys.executable, "-c"], "shell": ["bash", "-c"], "javascript": ["node", "-e"]}[attempt.language]
        if shutil.which(program[0]):
            said[attempt.name] = _bare([*program, filled(attempt, facts)], folder)
    return said


def _bare(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "REMIT_TEST_SECRET": "geheim"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False, env=environment).stdout


if __name__ == "__main__":
    print(json.dumps(asyncio.run(try_all(json.loads(sys.argv[1])))))


def processes_marked(mark: str) -> list[int]:
    """Return the other processes with `mark` on their command line."""
    found = []
    for pid in all_pids():
        try:
            if mark.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]
