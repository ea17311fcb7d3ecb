"""commands: overhead of a delegation around a command that exits at once, compared with the same command started by asyncio alone.

The floor is the minimum for running a command: a new session, reading its output, waiting for its exit.
"""

import asyncio
import tempfile
from asyncio.subprocess import DEVNULL, PIPE

from bench.figures import Figure, median, milliseconds, percentile
from bench.sizes import Sizes
from bench.speed import timed_sequence
from remit import Remit
from remit.agents.definition import definition_of

COMMAND = ("true",)
TARGET_SECONDS = 0.015
_WARM = 5


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    ours: list[float] = []
    floors: list[float] = []
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        async with Remit.open(folder) as remit:
            remit.directory.define(definition_of("nothing", {"command": COMMAND, "answers": "value"}, source="bench"))

            async def delegated() -> None:
                done = await remit.delegate("nothing", task="Do nothing.")
                assert done.ok, done  # a refusal would be quick, and would look like speed

            await timed_sequence(delegated, _WARM)
            await timed_sequence(_bare, _WARM)
            for _ in range(sizes.rounds):
                ours.append(percentile(await timed_sequence(delegated, sizes.commands), 0.5))
                floors.append(percentile(await timed_sequence(_bare, sizes.commands), 0.5))
    added = median([one - floor for one, floor in zip(ours, floors, strict=True)])
    return [
        Figure(section="commands", what="floor: the command alone, in its own session, p50", measured=milliseconds(median(floors))),
        Figure(section="commands", what="remit, the same command as an agent, p50", measured=milliseconds(median(ours))),
        Figure(
            section="commands",
            what="added by remit, p50",
            measured=milliseconds(added),
            target=f"≤ {TARGET_SECONDS * 1e3:g} ms",
            is_met=added <= TARGET_SECONDS,
        ),
    ]


async def _bare() -> None:
    process = await asyncio.create_subprocess_exec(*COMMAND, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True)
    await process.communicate()
    assert process.returncode == 0
