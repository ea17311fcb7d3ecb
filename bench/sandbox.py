"""sandbox: overhead of `coder.execute_code` around an empty Python script, compared with bubblewrap and python started by asyncio alone.

The floor has the same namespaces, folders and limited file systems, but no supervisor, no Landlock, no filter and no record.
Acceptance: overhead of the sandbox for the command `true`, compared with the same command on the host.
Containment: overhead of `contain` for an agent whose command is `true`, compared with one whose command is bubblewrap running `true`.
"""

import asyncio
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Any

from bench.figures import Figure, median, milliseconds, percentile
from bench.sizes import Sizes
from bench.speed import timed_sequence
from remit import Remit, Settings
from remit.runtime.verify import AcceptanceSite, run_acceptance
from remit.system.sandbox import recipes
from remit.system.sandbox.bubblewrap import box_profile, enclose
from remit.system.sandbox.probe import probe
from remit.system.sandbox.recipes import Limits

TARGET_SECONDS = 0.015
ACCEPTANCE_TARGET_SECONDS = 0.030
CONTAINMENT_TARGET_SECONDS = 0.025
_WARM = 3


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    ours: list[float] = []
    floors: list[float] = []
    offer = probe()
    if offer.bubblewrap is None or offer.fault:
        return [Figure(section="sandbox", what="no bubblewrap works here", measured="not measured")]
    argv = enclose(offer.bubblewrap, box_profile(Limits()), {}, locks_namespaces=offer.locks_namespaces, has_keeper=True)
    argv += [str(recipes.python().program), "-I", "-S", "-B", "-X", "utf8", "-c", "pass"]

    async def bare() -> None:
        process = await asyncio.create_subprocess_exec(*argv, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True, env={})
        await process.communicate()
        assert process.returncode == 0

    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        async with Remit.open(folder) as remit:

            async def delegated() -> None:
                done = await remit.delegate("coder.execute_code", parameters={"code": "pass"})
                assert done.ok, done  # a refusal would be quick, and would look like speed

            await timed_sequence(delegated, _WARM)
            await timed_sequence(bare, _WARM)
            for _ in range(sizes.rounds):
                ours.append(percentile(await timed_sequence(delegated, sizes.commands), 0.5))
                floors.append(percentile(await timed_sequence(bare, sizes.commands), 0.5))
    added = median([one - floor for one, floor in zip(ours, floors, strict=True)])
    return [
        Figure(section="sandbox", what="floor: bubblewrap and python alone, an empty script, p50", measured=milliseconds(median(floors))),
        Figure(section="sandbox", what="remit, execute_code of an empty script, p50", measured=milliseconds(median(ours))),
        Figure(
            section="sandbox",
            what=f"added by remit ({offer.stack}, limits, record), p50",
            measured=milliseconds(added),
            target=f"≤ {TARGET_SECONDS * 1e3:g} ms",
            is_met=added <= TARGET_SECONDS,
        ),
        *await _measure_acceptance(sizes),
        *await _measure_containment(sizes),
    ]


async def _measure_containment(sizes: Sizes) -> list[Figure]:
    took: dict[str, list[float]] = {"by_hand": [], "contained": [], "with_hosts": []}
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as name:
        by_hand = [
            str(probe().bubblewrap), "--die-with-parent", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--cap-drop", "ALL",
            *("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin"),
            *("--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64"),
            *("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", name, name, "--chdir", name, "--", "/usr/bin/true"),
        ]  # fmt: skip
        tables: dict[str, dict[str, Any]] = {
            "by_hand": {"command": by_hand},
            "contained": {"command": ["/usr/bin/true"], "contain": True},
            "with_hosts": {"command": ["/usr/bin/true"], "contain": True, "hosts": ["example.com"]},
        }
        settings = {"agents": {agent: {**table, "answers": "value"} for agent, table in tables.items()}}
        async with Remit.open(name, settings=settings) as remit:
            for agent in took:  # warm
                assert (await remit.delegate(agent, task="Run.")).ok
            for _ in range(sizes.rounds):
                for agent, times in took.items():
                    asked = timed_sequence(lambda: remit.delegate(agent, task="Run."), sizes.commands)  # noqa: B023 - awaited here
                    times.append(percentile(await asked, 0.5))
    added = median([one - floor for one, floor in zip(took["contained"], took["by_hand"], strict=True)])
    named = {"by_hand": "floor: agent with bubblewrap by hand, p50", "contained": "contained agent, p50"}
    named["with_hosts"] = "contained agent with a list of hosts, p50"
    return [
        *(Figure(section="sandbox", what=named[agent], measured=milliseconds(median(times))) for agent, times in took.items()),
        Figure(
            section="sandbox",
            what="added by containment, p50",
            measured=milliseconds(added),
            target=f"≤ {CONTAINMENT_TARGET_SECONDS * 1e3:g} ms",
            is_met=added <= CONTAINMENT_TARGET_SECONDS,
        ),
    ]


async def _measure_acceptance(sizes: Sizes) -> list[Figure]:
    took: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as name:
        folder = Path(name)

        async def accept(is_on_host: bool) -> None:
            settings = Settings(accept_in="host" if is_on_host else "sandbox")
            site = AcceptanceSite(folder=folder, root=folder, settings=settings, is_asked_here=True)
            assert (await run_acceptance(["true"], site, seconds_left=60)).is_met

        for _ in range(sizes.rounds):
            for is_on_host, times in took.items():
                times.append(percentile(await timed_sequence(lambda: accept(is_on_host), sizes.commands), 0.5))  # noqa: B023 - awaited here
    added = median([one - floor for one, floor in zip(took[False], took[True], strict=True)])
    return [
        Figure(section="sandbox", what="floor: acceptance command `true` on the host, p50", measured=milliseconds(median(took[True]))),
        Figure(section="sandbox", what="acceptance command `true` in the sandbox, p50", measured=milliseconds(median(took[False]))),
        Figure(
            section="sandbox",
            what="added by the sandbox, p50",
            measured=milliseconds(added),
            target=f"≤ {ACCEPTANCE_TARGET_SECONDS * 1e3:g} ms",
            is_met=added <= ACCEPTANCE_TARGET_SECONDS,
        ),
    ]
