"""`remit serve` is killed with SIGKILL under load and restarted at the same addresses: clients of every API continue and lose nothing.

Processes and clients are real. A seed chooses the moments.
"""

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from serve_load import APIS, KINDS, LoadTask, Place, pids_noted, project, runs_noted

from remit import EventKind, SqliteStore
from support.apis.client import ended
from support.lab import rounds
from support.processes import is_alive

sys.path.append(str(Path(__file__).parents[1] / "integration"))
from serve_harness import serving

KILLS = rounds(3, lab=12)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return Place(project(tmp_path), port)


@pytest.mark.parametrize("seed", [7])
async def test_server_killed_under_load_loses_and_repeats_nothing(place: Place, seed: int) -> None:
    draw = random.Random(seed)
    load_tasks = [
        LoadTask(api, kind, f"{seed}-{api}-{kind}-{turn}", draw.choice([3, 12, 30]) if turn else 50, turn)
        for turn in range(KILLS + 1)
        for api in APIS
        for kind in KINDS
        if turn in (0, KILLS) or draw.random() < 0.6
    ]
    is_up = [asyncio.Event() for _ in range(KILLS + 1)]
    clients = asyncio.gather(*(_late(load_task, place, is_up[load_task.begins_in], draw.uniform(0, 0.8)) for load_task in load_tasks))
    for turn in range(KILLS):
        with serving(place.root, "--http", f"127.0.0.1:{place.port}") as server:
            is_up[turn].set()
            await asyncio.sleep(draw.uniform(0.9, 1.6) if turn == 0 else draw.uniform(0.0, 1.6))
            if turn == 0:  # at least one is lost, on a busy machine too
                await asyncio.wait_for(_is_talking(place.root), 60)
            os.kill(server.process.pid, signal.SIGKILL)
            await asyncio.to_thread(server.process.wait)
    with serving(place.root, "--http", f"127.0.0.1:{place.port}") as server:
        is_up[KILLS].set()
        await asyncio.wait_for(clients, 60)
        again = [await _looked(place, load_task) for load_task in load_tasks]
        server.send_signal()
        code, words = server.wait()
        assert code == 0, words
    assert sum(load_task.breaks for load_task in load_tasks) > 0
    assert {"finished", "crashed"} <= {load_task.seen.stop_reason for load_task in load_tasks if load_task.seen is not None}
    for load_task, seen in zip(load_tasks, again, strict=True):
        _holds(load_task, seen)
    _is_on_record_once(place.root, load_tasks)
    assert [pid for pid in pids_noted(place.root) if is_alive(pid, None)] == []


async def _is_talking(root: Path) -> None:
    """Until an agent that is lost with its server runs."""
    with contextlib.closing(SqliteStore(root / ".remit" / "remit.db")) as store:
        while not any(one.agent == "talker" and runs_noted(root, one.session_id) for one in store.live()):  # noqa: ASYNC110 - the server is another process
            await asyncio.sleep(0.02)


async def _late(load_task: LoadTask, place: Place, is_up: asyncio.Event, seconds: float) -> None:
    await is_up.wait()
    await asyncio.sleep(seconds)
    await load_task.run(place)


async def _looked(place: Place, load_task: LoadTask) -> Any:
    async with place.client(load_task.api) as api:
        return await api.status(load_task.task_ids[0])


def _holds(load_task: LoadTask, again: Any) -> None:
    """Check that the client has one task, received its end, and finds the same result again."""
    seen = load_task.seen
    assert seen is not None
    assert len(set(load_task.task_ids)) == 1, load_task
    assert again == seen
    is_crashed = (seen.status, seen.stop_reason, seen.code) == ("partial", "crashed", "AGENT_CRASHED")
    if load_task.kind == "stepper":
        assert (seen.status, seen.data["n"]) == ("completed", load_task.number), load_task
    elif load_task.begins_in == KILLS:
        assert seen.status == "completed", load_task
    else:
        assert seen.status == "completed" or is_crashed, load_task
    numbers = [said.number for said in load_task.heard]
    assert numbers == sorted({number for number in numbers if number is not None}), load_task


def _is_on_record_once(root: Path, load_tasks: list[LoadTask]) -> None:
    """Check that the records contain exactly the started tasks, and that the received events match them."""
    store = SqliteStore(root / ".remit" / "remit.db")
    try:
        assert list(store.live()) == []
        roots = [record for load_task in load_tasks for record in [store.get(load_task.task_ids[0])] if record is not None]
        known = {record.session_id for record in roots}
        assert len(known) == len(load_tasks)
        for record in roots:
            for node in store.tree(record.root_id):
                events = store.events(node.session_id)
                assert node.state.is_settled
                assert runs_noted(root, node.session_id) <= 1 or node.agent == "stepper", node  # only resumable agents run again
                assert [event.number for event in events] == sorted({event.number for event in events})
        for load_task in load_tasks:
            said = {event.number: event for event in store.events(load_task.task_ids[0])}
            for one in load_task.heard:
                assert one.number in said, (load_task, one)
                if one.kind == "data":
                    assert said[one.number].body["chunk"] == one.value, (load_task, one)
            if load_task.heard:
                chunks = [number for number, event in said.items() if event.kind is EventKind.DATA]
                assert [one.number for one in load_task.heard if one.kind == "data"] == chunks, load_task
    finally:
        store.close()


# ---- remote agents


async def test_killed_remote_agents_and_servers_lose_no_work_silently(place: Place) -> None:
    """A killed agent causes AGENT_UNAVAILABLE. The work of a killed server is settled and found again, and its agents register again."""
    address, options = f"unix:{place.root}/.remit/run/grpc.sock", ("--http", f"127.0.0.1:{place.port}")
    with contextlib.ExitStack() as ends:
        with serving(place.root, *options) as server:
            first = await _remote(ends, address)
            begun = await _begun(place, "first")
            assert await _line(first) == "order once"
            first.kill()
            seen = await _ended(place, begun)
            assert (seen.status, seen.stop_reason, seen.code) == ("failed", "unavailable", "AGENT_UNAVAILABLE")

            second = await _remote(ends, address)
            begun = await _begun(place, "second")
            assert await _line(second) == "order once"
            server.process.kill()
            await asyncio.to_thread(server.process.wait)
        with serving(place.root, *options):
            assert await _line(second) == "welcome"
            seen = await _ended(place, begun)
            assert (seen.status, seen.stop_reason, seen.code) == ("partial", "crashed", "AGENT_CRASHED")
            assert await _begun(place, "second") == begun  # the key does not start a new task
            (place.root / "third").touch()
            third = await _begun(place, "third")
            assert (await _ended(place, third)).data == {"by": second.pid}


async def _remote(ends: contextlib.ExitStack, address: str) -> Any:
    program = str(Path(__file__).with_name("remote_worker.py"))
    process = subprocess.Popen([sys.executable, program, address], stdout=subprocess.PIPE, text=True)  # noqa: ASYNC220 - starts immediately
    ends.callback(_end, process)
    assert await _line(process) == "welcome"
    return process


def _end(process: Any) -> None:
    process.kill()
    process.wait(10)
    process.stdout.close()


async def _line(process: Any) -> str:
    line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), 30)
    return str(line).strip()


async def _begun(place: Place, key: str) -> str:
    """The work lasts until the project has a file with the name of the key."""
    async with place.client("grpc") as api:
        return await api.execute({"target": "far", "operation": "once", "parameters": {"until": str(place.root / key)}, "key": key})


async def _ended(place: Place, task_id: str) -> Any:
    async with place.client("http") as api:
        return await ended(api, task_id)
