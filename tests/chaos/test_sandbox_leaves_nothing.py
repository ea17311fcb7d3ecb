# ruff: noqa: E501 - each program is one literal
"""Sandboxed code hides nothing from the keeper and leaves nothing behind after a cancel or kill at any moment."""

import asyncio
import os
import random
import time
from pathlib import Path

import pytest

from remit.system.sandbox import probe
from remit.system.sandbox.keeper import clear
from support.escape_stage import STACKS, offer_of, processes_marked, sandboxed
from support.folders import dig, removed_at_the_end
from support.pace import allowed
from support.processes import descendants
from support.sandboxes import MEBIBYTE, Job, Limits, run

each_stack = pytest.mark.parametrize("stack", STACKS)
each_alone = pytest.mark.parametrize("stack", STACKS[1:])
WRITE = "for n in range(12): open(f'{n}', 'wb').write(bytes(8 << 20))\nimport time\ntime.sleep(9)\n"


@each_alone
@pytest.mark.parametrize(
    "hiding",
    [
        "import os\nos.mkdir('d', 0o300)\nos.chdir('d')\n",
        "import os\nfor _ in range(40): os.mkdir('d' * 200); os.chdir('d' * 200)\n",
        "import os\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')\n",
        "import os\nos.fchmod(os.open('.', 0), 0o300)\n",
    ],
    ids=["in a folder that cannot be listed", "behind long names", "deep down", "in a work folder that cannot be listed"],
)
async def test_hidden_files_count_against_the_disk_limit(hiding: str, stack: str, box_parent: Path) -> None:
    ran, _, stderr = await sandboxed(hiding + WRITE, stack, limits=Limits(seconds=20, disk_bytes=32 * MEBIBYTE))
    assert ran.killed_by == "disk", stderr
    assert os.listdir(box_parent) == []


async def test_sandboxed_code_has_the_highest_oom_score() -> None:
    _, stdout, _ = await sandboxed("print(open('/proc/self/oom_score_adj').read())")
    assert stdout.strip() == "1000"


@each_stack
async def test_standard_input_is_read_only(stack: str) -> None:
    code = "import os, sys\ntry: os.write(0, b'x')\nexcept OSError as error: print(error.strerror)\nprint(sys.stdin.read())"
    _, stdout, _ = await sandboxed(code, stack, stdin=b"given")
    assert stdout == "Operation not permitted\ngiven\n"


@each_stack
async def test_files_are_returned_when_code_exits_at_the_output_limit(stack: str) -> None:
    """The keeper returns the files even if the code has ended before the order to stop it."""
    code = "import os, time\nopen('f', 'w').write('x')\nos.write(1, b'y' * 59000)\ntime.sleep(0.1)\nos.write(1, b'y' * 60000)\nos.write(1, b'y' * 50000)\nos._exit(0)"
    for _ in range(4):
        ran, _, _ = await sandboxed(code, stack, limits=Limits(seconds=20, output_bytes=10_000))
        assert [left.name for left in ran.files] == ["f"]
        assert (ran.exit_code, ran.killed_by) in ((0, ""), (None, "output"))


@each_stack
async def test_cancel_at_any_moment_leaves_nothing(stack: str, box_parent: Path, tmp_path: Path) -> None:
    mark = f"603.{os.getpid()}"
    job = Job(language="shell", code=f"setsid sleep {mark} & sleep {mark}")
    chance = random.Random(4)
    for turn in range(5):
        tasks = [asyncio.create_task(run(job, offer_of(stack), hear=lambda *_: None, out=tmp_path / f"{turn}{n}")) for n in range(6)]
        for task in tasks:
            await asyncio.sleep(chance.random() * 0.03)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
        done, pending = await asyncio.wait(tasks, timeout=30)
        assert not pending
        assert all(task.cancelled() for task in done)
    assert processes_marked(mark) == []
    assert os.listdir(box_parent) == []


def test_deep_or_unreadable_folder_is_removed(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("x")
    box = tmp_path / "box"
    box.mkdir()
    (box / "link").symlink_to(tmp_path / "kept")
    (box / "closed").mkdir(0o300)
    (box / "closed" / "file").write_text("x")
    with removed_at_the_end(box):
        os.close(dig(box, 1100))
        clear(str(box))
        assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_hanging_bubblewrap_is_unusable_and_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = f"604.{os.getpid()}"
    hanging = tmp_path / "bwrap"
    hanging.write_text(f"#!/bin/sh\nsleep {mark}\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(probe, "TRY_SECONDS", 0.3)
    began = time.monotonic()
    assert "did not end" in probe._try(hanging)[0]
    assert time.monotonic() - began < allowed(20)
    assert processes_marked(mark) == []


@each_stack
async def test_external_kill_is_not_reported_as_a_limit(stack: str, tmp_path: Path) -> None:
    mark = f"605.{os.getpid()}"
    job = Job(language="shell", code=f"sleep {mark} & sleep {mark} & sleep {mark}")
    work = asyncio.create_task(run(job, offer_of(stack), hear=lambda *_: None, out=tmp_path / "out"))
    while len(processes_marked(mark)) < 3:  # noqa: ASYNC110 - waits for other processes
        await asyncio.sleep(0.02)
    (keeper,) = [
        pid
        for pid in processes_marked("import marshal")
        if pid in descendants(os.getpid()) and pid not in processes_marked("--die-with-parent")
    ]
    os.kill(keeper, 9)
    ended = await work
    assert (ended.exit_code, ended.signal, ended.killed_by) == (None, 9, "")
    while processes_marked(mark):  # noqa: ASYNC110 - waits for other processes
        await asyncio.sleep(0.02)
