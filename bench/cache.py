"""Cost of a reused result, compared with a plain delegation and with hashing the file that it depends on."""

import hashlib
import tempfile
from pathlib import Path
from typing import Any

from bench.figures import Figure, median, microseconds, percentile
from bench.sizes import Sizes
from bench.speed import timed_sequence
from remit import Remit, agent

TARGET = 1.3
FILE_BYTES = 16 * 1024


@agent("plain", effects=("read",))
async def plain(path: str = "") -> str:
    return path


@agent("cached", effects=("read",), cache="1h")
async def cached(path: str = "") -> str:
    return path


@agent("cached_file", effects=("read",), cache="1h", reads=("path",))
async def cached_file(path: str) -> str:
    return path


async def measure(sizes: Sizes, _wanted: frozenset[str]) -> list[Figure]:
    names = ("plain", "cached", "cached_file", "plain_and_hash")
    found: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        file = Path(folder) / "file"
        file.write_bytes(bytes(FILE_BYTES))

        async with Remit.open(folder, agents=[plain, cached, cached_file]) as remit:

            def delegated(name: str) -> Any:
                return lambda: remit.delegate(name, path="file")

            async def plain_and_hash() -> None:
                await remit.delegate("plain", path="file")
                hashlib.sha256(file.read_bytes()).hexdigest()

            calls = {name: delegated(name) for name in names[:3]} | {"plain_and_hash": plain_and_hash}
            for call in calls.values():
                await timed_sequence(call, 50)
            for _ in range(sizes.rounds):
                for name, call in calls.items():
                    found[name].append(percentile(await timed_sequence(call, sizes.sequential // 2), 0.5))
    ratio = median([hit / plain for hit, plain in zip(found["cached"], found["plain"], strict=True)])
    with_file = median([hit / floor for hit, floor in zip(found["cached_file"], found["plain_and_hash"], strict=True)])
    return [
        *(Figure(section="cache", what=what, measured=microseconds(median(found[name]))) for name, what in _WORDS.items()),
        _against("a result from the cache, against a plain delegation", ratio),
        _against("the same with a file, against a plain delegation and hashing", with_file),
    ]


_WORDS = {
    "plain": "floor: a plain delegation, one by one, p50",
    "plain_and_hash": "floor: a plain delegation, then reading and hashing a file of 16 KB, p50",
    "cached": "a result from the cache, one by one, p50",
    "cached_file": "a result from the cache that depends on that file, p50",
}


def _against(what: str, ratio: float) -> Figure:
    return Figure(section="cache", what=what, measured=f"{ratio:.2f} times", target=f"≤ {TARGET:g} times", is_met=ratio <= TARGET)
