# ruff: noqa: E501 - each program is one literal
"""Sandbox limits apply to all code in both stacks. The exceeded limit is reported and nothing is left behind."""

import asyncio
import os
import re
import time
from pathlib import Path

import pytest

from remit import Unavailable
from support.escape_stage import STACKS, offer_of, processes_marked, sandboxed
from support.pace import allowed, wait_until
from support.sandboxes import MEBIBYTE, Job, Limits, Offer, required, run

each_stack = pytest.mark.parametrize("stack", STACKS)


@each_stack
async def test_fork_bomb_ends_at_the_process_limit(stack: str) -> None:
    code = "import os\nfor _ in range(12):\n    try: os.fork()\n    except OSError: pass\nimport time\ntime.sleep(0.4)\n"
    ran, _, _ = await sandboxed(code, stack, limits=Limits(seconds=10, processes=16))
    assert "processes" in ran.hits


@each_stack
async def test_endless_shell_fork_bomb_ends_at_the_time_limit(stack: str) -> None:
    began = time.monotonic()
    ran, _, _ = await sandboxed("f() { f | f & f; }; f", stack, language="shell", limits=Limits(seconds=1, processes=24))
    assert ran.killed_by in ("time", "") or ran.signal
    assert time.monotonic() - began < allowed(30)


SOCKETS = """
import os, socket, time
for _ in range(8):
    if os.fork() == 0:
        kept = []
        while len(kept) < 100:
            kept.append(socket.socketpair())
            for one in kept[-1]:
                one.setblocking(False)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 << 20)
                try:
                    while True: one.send(bytes(1 << 16))
                except BlockingIOError: pass
        time.sleep(9)
time.sleep(9)
"""
EXCEEDING = {
    "processes": (
        "import os, time\nfor _ in range(6):\n    if os.fork() == 0:\n        x = bytearray(os.urandom(1 << 20) * 60)\n        time.sleep(9)\ntime.sleep(9)\n",
        {"memory_bytes": 160 * MEBIBYTE}, "^memory",
    ),
    "sockets": (SOCKETS, {"memory_bytes": 160 * MEBIBYTE}, "^memory"),
    "files": (
        "for n in range(10 ** 6):\n    with open(f'/tmp/f{n}' if n % 2 and HAS_TMP else f'f{n}', 'wb') as file: file.write(bytes(1 << 20))\n",
        {"disk_bytes": 16 * MEBIBYTE}, "^disk|No space left",
    ),
    "empty files": ("n = 0\nwhile True:\n    n += 1\n    open(f'f{n}', 'w').close()\n", {"seconds": 20, "files": 2000}, "^disk"),
    "deleted open files": (
        "import os, time\nfiles = []\nfor n in range(8):\n    file = open('x', 'wb', buffering=0); os.unlink('x'); file.write(bytes(8 << 20)); files.append(file)\ntime.sleep(9)\n",
        {"disk_bytes": 32 * MEBIBYTE}, "^disk|No space left",
    ),
}  # fmt: skip
"""Programs with their limits and what reports the exceeded one."""


@each_stack
@pytest.mark.parametrize("what", EXCEEDING)
async def test_memory_and_disk_limits_apply_to_the_sum(stack: str, what: str) -> None:
    code, limits, expected = EXCEEDING[what]
    code = code.replace("HAS_TMP", str(stack == "bubblewrap"))
    ran, _, stderr = await sandboxed(code, stack, limits=Limits(**{"seconds": 10, **limits}))  # type: ignore[arg-type]
    assert re.search(expected, f"{ran.killed_by} {stderr}")


@each_stack
async def test_memory_shared_by_processes_is_counted_once(stack: str) -> None:
    code = "import os, time\nx = bytearray(os.urandom(1 << 20) * 60)\nfor _ in range(6):\n    if os.fork() == 0:\n        time.sleep(0.4)\n        os._exit(0)\ntime.sleep(0.5)\n"
    ran, _, _ = await sandboxed(code, stack, limits=Limits(seconds=10, memory_bytes=160 * MEBIBYTE))
    assert ran.exit_code == 0


@each_stack
async def test_output_flood_is_truncated_and_the_code_is_killed(stack: str) -> None:
    ran, stdout, _ = await sandboxed("while True: print('y' * 1000)", stack, limits=Limits(seconds=20, output_bytes=10_000))
    assert ran.killed_by == "output"
    assert ran.is_cut
    assert len(stdout) == 10_000


@each_stack
async def test_background_processes_end_with_the_code(stack: str) -> None:
    mark = f"600.{os.getpid()}"
    code = f"""
import os, subprocess
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv("/bin/sleep", ["sleep", "{mark}"])
        os._exit(0)
subprocess.Popen(["nohup", "setsid", "sleep", "{mark}"])
print("started")
"""
    ran, stdout, _ = await sandboxed(code, stack)
    assert (ran.exit_code, stdout) == (0, "started\n")
    assert processes_marked(mark) == []


@each_stack
async def test_cancel_kills_the_code_and_its_children(stack: str, tmp_path: Path) -> None:
    mark = f"601.{os.getpid()}"
    started = asyncio.Event()
    job = Job(language="shell", code=f"setsid sleep {mark} & sleep {mark} & echo go; wait")
    running = asyncio.create_task(
        run(job, offer_of(stack), hear=lambda *_: started.set(), out=tmp_path / "out")
    )  # fmt: skip
    await asyncio.wait_for(started.wait(), 20)
    while not processes_marked(mark):  # noqa: ASYNC110 - waits for another process
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert processes_marked(mark) == []


@each_stack
def test_sandboxed_code_dies_when_its_orchestrator_is_killed(stack: str, box_parent: Path, tmp_path: Path) -> None:
    mark = f"602.{os.getpid()}"
    child = os.fork()
    if child == 0:
        try:
            job = Job(language="shell", code=f"setsid sleep {mark} & sleep {mark}", limits=Limits(seconds=60))
            asyncio.run(run(job, offer_of(stack), hear=lambda *_: None, out=tmp_path / "out"))
        finally:
            os._exit(0)
    wait_until(lambda: processes_marked(mark))
    os.kill(child, 9)
    os.waitpid(child, 0)
    wait_until(lambda: not processes_marked(mark) and not os.listdir(box_parent))


@each_stack
async def test_links_and_special_files_are_not_returned(stack: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("geheim")
    code = f"""
import os
os.symlink({str(tmp_path / "secret")!r}, "link"); os.symlink("/", "root"); os.mkfifo("pipe"); os.mkdir("folder")
open("folder/good.txt", "w").write("good"); open("bad\\nname", "w").write("x"); open(b"\\xff", "w").write("x"); open("back\\\\slash", "w").write("x")
os.link("folder/good.txt", "again.txt"); open("locked", "w").write("x"); os.chmod("locked", 0)
"""
    ran, _, stderr = await sandboxed(code, stack, out=tmp_path / "out")
    assert (ran.exit_code, stderr) == (0, "")
    brought = {path.relative_to(tmp_path / "out").as_posix(): path for path in (tmp_path / "out").rglob("*") if not path.is_dir()}
    assert set(brought) - {"locked"} == {"folder/good.txt", "again.txt"}
    assert all(not path.is_symlink() and path.stat().st_nlink == 1 for path in brought.values())
    assert ran.left_there >= 3


async def test_code_is_refused_without_an_available_sandbox() -> None:
    with pytest.raises(Unavailable) as raised:
        required(Offer())
    assert raised.value.code == "TOOL_UNAVAILABLE"
    assert "remit[sandbox]" in raised.value.advice


async def test_bubblewrap_failure_reports_its_cause(tmp_path: Path) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho no namespaces today >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(Unavailable, match="no namespaces today"):
        await run(Job(language="python", code="pass"), Offer(bubblewrap=broken), hear=lambda *_: None, out=tmp_path / "out")
