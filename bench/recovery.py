"""Recovery: share of the work written by agents before their deadline that is returned to the caller.

Each agent writes files, chunks and checkpoints and records each in its own log as soon as it is written; the log is then compared
with the return alone.
"""

import asyncio
import hashlib
import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from bench.agents import WRITERS
from bench.figures import Figure
from bench.sizes import Sizes
from remit import Remit, Return
from remit.core.result import StopReason

_TIMEOUT_SECONDS = 0.7
KINDS = ("file", "chunk", "checkpoint")


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    written: Counter[str] = Counter()
    recovered: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as logs, tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        async with Remit.open(folder, agents=WRITERS) as remit:
            for number in range(sizes.recoveries):
                for writer in WRITERS:
                    run = f"{writer.spec.name}_{number}"
                    log = Path(logs) / run
                    done = await remit.delegate(writer.spec.name, folder=run, log=str(log), timeout=_TIMEOUT_SECONDS)
                    assert done.stop_reason is StopReason.DEADLINE, done
                    noted, back = await asyncio.to_thread(_compared, log, Path(folder), run, done)
                    written += noted
                    recovered += back
    assert all(written[kind] for kind in KINDS), written
    return [
        Figure(
            section="recovery",
            what=f"{kind}s written by {len(WRITERS)} kinds of agent × {sizes.recoveries} until stopped, recovered",
            measured=f"{recovered[kind] / written[kind]:.2%} of {written[kind]:,}",
            target="100 %",
            is_met=recovered[kind] == written[kind],
        )
        for kind in KINDS
    ]


def _compared(log: Path, root: Path, run: str, done: Return) -> tuple[Counter[str], Counter[str]]:
    """Amount written and amount found in the return, by kind. Only the last checkpoint counts."""
    noted: dict[str, list[int]] = {kind: [] for kind in KINDS}
    for line in log.read_text().splitlines():
        kind, number = line.split()
        noted[kind].append(int(number))
    data = _data_of(done, root)
    chunks = {chunk["number"] for chunk in data.get("chunks", ())}
    last = noted["checkpoint"][-1:]
    files = {artifact.path: artifact.sha256 for artifact in done.artifacts}
    back = Counter(
        file=sum(_is_back(files, root, f"{run}/{number}.txt") for number in noted["file"]),
        chunk=len(chunks & set(noted["chunk"])),
        checkpoint=sum(data.get("checkpoint", 0) >= number for number in last),
    )
    return Counter(file=len(noted["file"]), chunk=len(noted["chunk"]), checkpoint=len(last)), back


def _is_back(files: dict[str, str | None], root: Path, path: str) -> bool:
    return path in files and files[path] == hashlib.sha256((root / path).read_bytes()).hexdigest()


def _data_of(done: Return, root: Path) -> dict[str, Any]:
    data: dict[str, Any] = done.data or {}
    if "by_reference" in data:
        data = json.loads((root / data["by_reference"]).read_text())
    return data
