"""`python -m bench`: run all benchmarks, print the table, write `bench/RESULTS.md`.

`--only W1,W2` runs a selection and `--quick` a short version of everything; neither writes results unless `--out` names a file.
"""

import argparse
import asyncio
import faulthandler
import gc
import importlib
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from bench.figures import Figure, report, table
from bench.sizes import FULL, QUICK, Sizes

Measure = Callable[[Sizes, frozenset[str]], Awaitable[list[Figure]]]


def later(module: str, name: str = "measure") -> Measure:
    """Import the section when its turn comes: the thousands of objects of a library would slow down earlier measurements."""

    async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
        measured: Measure = getattr(importlib.import_module(f"bench.{module}"), name)
        return await measured(sizes, wanted)

    return measure


SECTIONS: dict[tuple[str, ...], Measure] = {
    ("W1", "W2", "W3"): later("speed"),
    ("W4",): later("waiting"),
    ("W5",): later("overrun"),
    ("defaults",): later("defaults"),
    ("start",): later("start"),
    ("commands",): later("commands"),
    ("processes",): later("processes", "measure_processes"),
    ("power",): later("processes", "measure_power"),
    ("growth",): later("growth"),
    ("sandbox",): later("sandbox"),
    ("trust",): later("trust"),
    ("policy",): later("policy"),
    ("hostile",): later("endings", "measure_overrun"),
    ("kill",): later("endings", "measure_kill"),
    ("orphans",): later("endings", "measure_orphans"),
    ("recovery",): later("recovery"),
    ("read_file",): later("worker_files", "measure_reading"),
    ("search_files",): later("worker_files", "measure_searching"),
    ("mcp",): later("tools"),
    ("grpc",): later("serving", "measure_grpc"),
    ("http",): later("serving", "measure_http"),
    ("pushed",): later("pushed"),
    ("streams",): later("streaming"),
    ("held",): later("held"),
    ("composition",): later("composition"),
    ("models",): later("models"),
    ("analysis",): later("analysis"),
    ("board",): later("board"),
    ("cache",): later("cache"),
    ("limits",): later("learning"),
    ("routing",): later("routing"),
    ("temporal",): later("remote"),
    ("temporal_many",): later("remote", "measure_many"),
    ("postgres",): later("shared_record"),
}
NAMES = tuple(name for names in SECTIONS for name in names)
LONG = frozenset({"temporal_many"})
"""Measured only when requested by name: minutes each."""
RESULTS = Path(__file__).with_name("RESULTS.md")


def main() -> int:
    asked = _arguments()
    sizes = QUICK if asked.quick else FULL
    os.environ["REMIT_TRUST"] = "1"  # projects of the benchmark approve their own agents
    began = time.monotonic()
    faulthandler.dump_traceback_later(sizes.seconds_all + 30, exit=True)  # in case something blocks even the event loop
    figures: list[Figure] = []
    for names, measure in SECTIONS.items():
        wanted = asked.only & frozenset(names)
        if wanted:
            print(f"measuring {', '.join(name for name in names if name in wanted)} …", file=sys.stderr, flush=True)
            left = began + sizes.seconds_all - time.monotonic()
            each = left if wanted & LONG else min(sizes.seconds_each, left)
            figures += _measured(measure, replace(sizes, seconds_each=each), wanted)
    faulthandler.cancel_dump_traceback_later()
    if is_plain := asked.only == frozenset(NAMES) - LONG:
        figures += [Figure(section=name, what="takes minutes", measured=f"python -m bench --only {name}") for name in sorted(LONG)]
    print(table(figures))
    out = asked.out or (RESULTS if is_plain and not asked.quick else None)
    if out is not None:
        out.write_text(report(figures, title="Speed and endings, measured", seconds=time.monotonic() - began), encoding="utf-8")
    return int(any(f.measured.startswith("not measured") for f in figures))


def _measured(measure: Measure, sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    async def bounded() -> list[Figure]:
        async with asyncio.timeout(sizes.seconds_each):
            return await measure(sizes, wanted)

    gc.collect()
    gc.freeze()  # objects of earlier sections do not slow this one down
    try:
        return asyncio.run(bounded())
    except Exception as error:  # noqa: BLE001 - a section that fails must not lose the figures of the others
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        return [Figure(section="/".join(sorted(wanted)), what=what, measured="not measured", is_met=False)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure remit against its floors.")
    parser.add_argument("--quick", action="store_true", help="small sizes: proves that it works, says little about speed")
    parser.add_argument("--only", type=_names, default=frozenset(NAMES) - LONG, metavar="NAMES", help=f"some of {','.join(NAMES)}")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write the table")
    return parser.parse_args()


def _names(text: str) -> frozenset[str]:
    by_lower = {name.lower(): name for name in NAMES}
    asked = [part.strip().lower() for part in text.split(",") if part.strip()]
    unknown = [part for part in asked if part not in by_lower]
    if unknown or not asked:
        raise argparse.ArgumentTypeError(f"unknown {', '.join(unknown) or 'section'}; there are {', '.join(NAMES)}")
    return frozenset(by_lower[part] for part in asked)


if __name__ == "__main__":
    sys.exit(main())
