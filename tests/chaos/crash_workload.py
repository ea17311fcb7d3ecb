"""Workload that is killed with SIGKILL at random moments, recovered by another process, and checked. Started by `test_kill9`.

    python crash_workload.py KIND FOLDER FIRST_SEED ROUNDS     prints one line of JSON per round

Each round forks a worker from this warm, single-threaded process, kills it (sometimes also the recovering process), and lets another
process recover the project and check the records. Only the agents write to the append-only file of events that really happened.
"""

import asyncio
import gc
import hashlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import remit.policy.engine  # noqa: F401 - imported once, before the forks
from remit import Context, Record, Remit, State, agent, call, each, first, parallel, sequence
from remit.system.packages import offered
from support.processes import marked

STAGES = 6
EXPECTED = [n * 10 for n in range(STAGES)]
WORK_SECONDS = 0.22
"""Approximate duration of an undisturbed run after the project is open."""


def note(ctx: Any, what: str, **more: Any) -> None:
    line = json.dumps({"what": what, "session": ctx.session_id, "call": [ctx.path[-1], ctx.parameters.get("n")], **more}) + "\n"
    file = os.open(ctx.root / "happened.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)


@agent("root", timeout=60, resumable=True)
async def root_agent(ctx: Context, with_process: bool) -> list[int]:
    note(ctx, "started")
    values = []
    for n in range(STAGES):
        requests = [call("keeper", n=n), call("once", n=n)]
        if with_process and n == 1:
            requests.append(call("apart", n=n))
        kept, once, *_ = await ctx.gather(*requests)
        values.append(kept.data + once.data)
        await ctx.checkpoint(n)
    note(ctx, "done")
    return values


@agent("keeper", resumable=True)
async def keeper(ctx: Context, n: int) -> int:
    note(ctx, "started")
    first = await ctx.delegate("leaf", n=n)
    handle = await ctx.start("leaf", n=n + 1000)
    second = await handle.result()
    note(ctx, "done")
    return int(first.data + second.data - 1000)


@agent("leaf")
async def leaf(ctx: Context, n: int) -> int:
    note(ctx, "started")
    await asyncio.sleep(0.006)
    note(ctx, "done")
    return n


@agent("once")
async def once(ctx: Context, n: int) -> int:
    note(ctx, "started")
    await asyncio.sleep(0.01)
    note(ctx, "done")
    return n * 8


@agent("apart", isolation="process")
def apart(ctx: Any, n: int) -> int:
    """Leave a daemon behind, which must be found after the orchestrator is killed."""
    note(ctx, "started")
    if os.fork() == 0:
        os.setsid()
        time.sleep(30)
        os._exit(0)
    time.sleep(0.1)
    note(ctx, "done")
    return n


@agent("sleepy")
async def sleepy(n: int) -> None:
    await asyncio.sleep(30)


@agent("total")
async def total(ctx: Context, values: list[Any], n: int = 0) -> int:
    note(ctx, "started")
    numbers, waiting = [], list(values)
    while waiting:
        one = waiting.pop()
        waiting += one if isinstance(one, list) else []
        numbers += [one] if isinstance(one, int) else []
    note(ctx, "done")
    return sum(numbers)


FLOW = sequence(
    *(
        parallel(call("leaf", n=n + 1), call("once", n=n + 2), each("leaf", over=[n + 3, n + 4], into="n", limit=1))
        for n in range(0, 70, 10)
    ),
    decided=first(call("sleepy", n=71), call("once", n=72)),
    answer=call("total", values=[{"$": str(number)} for number in range(7)] + [{"$": "decided"}]),
    result="answer",
)
"""Thirty calls."""
TOTAL = sum((n + 1) + (n + 2) * 8 + (n + 3) + (n + 4) for n in range(0, 70, 10)) + 72 * 8

AGENTS = [root_agent, keeper, leaf, once]
"""`apart` is added only in the rounds that call it: with a process agent, every opening starts an interpreter."""


async def work(folder: Path, with_process: bool) -> None:
    async with Remit.open(folder, agents=AGENTS) as remit:
        (folder / "opened").touch()
        await (remit.delegate(FLOW) if total in AGENTS else remit.delegate("root", with_process=with_process))


async def recover(folder: Path) -> None:
    async with Remit.open(folder, agents=AGENTS) as remit:
        for session_id in remit.recovered.resumed:
            await remit.result(session_id, wait_seconds=20)
        with (folder / "recovered.txt").open("a") as file:
            file.write("".join(f"{session_id}\n" for session_id in (*remit.recovered.resumed, *remit.recovered.settled)))


async def recover_and_judge(folder: Path) -> None:
    async with Remit.open(folder, agents=AGENTS) as remit:
        (folder / "opened").touch()
        for session_id in remit.recovered.resumed:
            await remit.result(session_id, wait_seconds=20)
        faults = judge(folder, await remit.history(limit=1000))
        if remit.export_state()["active"]:
            faults.append(f"still live: {[r.session_id for r in await remit.live()]}")
    (folder / "faults.json").write_text(json.dumps(faults))


def judge(folder: Path, records: list[Record]) -> list[str]:
    """Compare the records with the real events and return the faults."""
    path = folder / "happened.jsonl"
    happened = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    by_session = {record.session_id: record for record in records}
    faults = [f"lost: {h}" for h in happened if h["session"] not in by_session]
    faults += [f"not settled: {r.session_id} {r.agent} {r.state}" for r in records if not r.state.is_settled or r.result is None]
    faults += [f"two outcomes: {r.session_id}" for r in records if r.result is not None and r.result.session_id != r.session_id]
    done = Counter(h["session"] for h in happened if h["what"] == "done")
    for record in records:
        resumable = record.agent in ("root", "keeper")
        if record.agent == "compose.run":
            if record.result is None or record.result.data != TOTAL:
                faults.append(f"composition: {record.state} {record.result}")
        elif record.state is State.COMPLETED and (done[record.session_id] < 1 or (done[record.session_id] > 1 and not resumable)):
            faults.append(f"{record.agent} {record.session_id} is completed and was done {done[record.session_id]} times")
        if record.agent == "root" and (record.state is not State.COMPLETED or record.result is None or record.result.data != EXPECTED):
            faults.append(f"root: {record.state} {record.result}")
    return faults + calls_run_again(happened, by_session)


def calls_run_again(happened: list[dict[str, Any]], by_session: dict[str, Record]) -> list[str]:
    """Return the calls that started again after their result was recorded."""
    faults = []
    completed: dict[str, Record] = {}
    for record in sorted(by_session.values(), key=lambda r: r.created_at):
        name = f"{record.agent} {record.parameters}"
        earlier = completed.get(name)
        if earlier is not None:
            faults.append(f"{name} was completed by {earlier.session_id} and run again as {record.session_id}")
        if record.state is State.COMPLETED:
            completed[name] = record
    started = Counter(h["session"] for h in happened if h["what"] == "started")
    faults += [
        f"{by_session[session].agent} {session} was begun {times} times under one id and is not resumable"
        for session, times in started.items()
        if times > 1 and session in by_session and by_session[session].agent in ("leaf", "once", "apart")
    ]
    return faults


def forked(job: Callable[[], Coroutine[Any, Any, None]]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            asyncio.run(job())
            code = 0
        finally:
            os._exit(code)
    return pid


def kill_after_opening(pid: int, folder: Path, seconds: float) -> None:
    """Kill it after it opened the project, or after the time that opening takes: some rounds also kill the opening."""
    end = time.monotonic() + random.choice((0.03, 5.0))
    while not (folder / "opened").exists() and time.monotonic() < end:
        time.sleep(0.001)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    (folder / "opened").unlink(missing_ok=True)


def killed(folder: Path, seed: int) -> list[str]:
    """Kill the worker at a random moment, and in some rounds also its recovery."""
    with_process = seed % 10 == 0
    AGENTS[4:] = [apart] if with_process else []
    return _killed(folder, with_process)


def _killed(folder: Path, with_process: bool) -> list[str]:
    pid = forked(lambda: work(folder, with_process))
    kill_after_opening(pid, folder, random.uniform(0.0, WORK_SECONDS * (3 if with_process else 1)))
    while random.random() < 0.3:
        kill_after_opening(forked(lambda: recover_and_judge(folder)), folder, random.uniform(0.0, WORK_SECONDS))
    return judged(folder)


def composed(folder: Path, seed: int) -> list[str]:
    """Kill a composition, and then its recovery repeatedly."""
    AGENTS[4:] = [sleepy, total]
    return _killed(folder, with_process=False)


def raced(folder: Path, seed: int) -> list[str]:
    """Kill the worker, then recover with three processes at once: one of them takes over each delegation and settles it once."""
    kill_after_opening(forked(lambda: work(folder, False)), folder, random.uniform(0.0, WORK_SECONDS))
    for pid in [forked(lambda: recover(folder)) for _ in range(3)]:
        os.waitpid(pid, 0)
    return judged(folder)


def crowded(folder: Path, seed: int) -> list[str]:
    """Open the project in other processes while one works in it: they do not take over the work of a live process."""
    worker = forked(lambda: work(folder, False))
    others = []
    for _ in range(4):
        time.sleep(random.uniform(0.0, WORK_SECONDS / 4))
        others.append(forked(lambda: recover(folder)))
    for pid in (worker, *others):
        os.waitpid(pid, 0)
    taken = (folder / "recovered.txt").read_text().split() if (folder / "recovered.txt").exists() else []
    again = [line for line in (folder / "happened.jsonl").read_text().splitlines() if '"done"' in line]
    faults = [f"taken over from a living process: {session_id}" for session_id in taken]
    faults += ["something was done twice"] if len(again) != len(set(again)) else []
    return faults + judged(folder)


def judged(folder: Path) -> list[str]:
    (folder / "faults.json").unlink(missing_ok=True)
    _, status = os.waitpid(forked(lambda: recover_and_judge(folder)), 0)
    if not (folder / "faults.json").exists():
        return [f"recovery ended with {status}"]
    faults: list[str] = json.loads((folder / "faults.json").read_text())
    project = hashlib.sha256(str((folder / ".remit").resolve()).encode()).hexdigest()[:12]
    end = time.monotonic() + 1.0
    while (left := marked(f"{project}:")) and time.monotonic() < end:
        time.sleep(0.01)
    return faults + [f"process left: {pid}" for pid in left]


def main() -> None:
    play = {"killed": killed, "composed": composed, "raced": raced, "crowded": crowded}[sys.argv[1]]
    folder, first, rounds = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    offered("remit.agents")
    gc.freeze()
    for seed in range(first, first + rounds):
        random.seed(seed)
        project = folder / f"round-{seed}"
        project.mkdir()
        print(json.dumps({"seed": seed, "faults": play(project, seed)}), flush=True)


if __name__ == "__main__":
    main()
