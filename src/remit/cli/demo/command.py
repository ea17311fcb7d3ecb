"""The command `remit demo`: runs the survey of this folder, shows it live, then says what was seen and what to try next."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json

if TYPE_CHECKING:
    from remit.cli.demo.verdict import Part
    from remit.core.record import Record
    from remit.core.result import Return

NEXT = {
    "show last": "the tree with its times, evidence and return",
    "history": "everything delegated here",
    "ledger": "the errors, similar ones as one",
    "status": "in a second terminal, while something runs",
}
OWN_AGENT = """
Your own agent: put this into .remit/agents/hello.py

  from remit import agent, Context

  @agent("hello", timeout=10)
  async def hello(ctx: Context, name: str) -> str:
      return f"Hello, {name}, from depth {ctx.depth}."
"""


def demo(
    root: Annotated[
        Path | None, typer.Option("--root", metavar="DIR", help="The folder to survey. Default: this one.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> Exit:
    """See it work: surveys this folder with a tree of agents, three of which misbehave. No key, no server."""
    import asyncio

    from remit.cli.project import find_root

    return asyncio.run(_demo(find_root(root or Path.cwd()), as_json))


async def _demo(folder: Path, as_json: bool) -> Exit:
    from remit.app import Remit
    from remit.cli.demo.agents import AGENTS
    from remit.cli.demo.verdict import judged
    from remit.cli.live import best_show, carried_out
    from remit.cli.living import mind_the_dead
    from remit.cli.output import say_aside

    began = time.monotonic()
    # What the demo shows must not depend on how the project is set up.
    settings = {"max_depth": 3, "cycles": "agent", "slots_total": 256}
    async with Remit.open(folder, agents=AGENTS, settings=settings, recover=False) as remit:
        await mind_the_dead(remit)
        surveyed = _folder_to_survey(folder)
        if not as_json:
            say_aside(_introduction(folder, surveyed))
        handle = await remit.start("demo.survey", folder=str(surveyed))
        outcome = await carried_out(remit, handle, best_show(as_json=as_json))
        records = await remit.tree(outcome.result.session_id)
        parts = judged(folder, outcome.result, records)
        _say(outcome.result, parts, records, time.monotonic() - began, as_json)
    if outcome.was_interrupted:
        return Exit.INTERRUPTED
    return Exit.OK if all(part.is_kept for part in parts) else Exit.FAILED


def _folder_to_survey(folder: Path) -> Path:
    """This folder; where there is nothing in it, the program's own source, so that there is something to do."""
    from remit.flow.search import Bounds, search

    some = search(folder, "", Bounds(stop_at=time.monotonic() + 1.0, max_entries=1_000))
    return folder if some.found or some.stopped_early else Path(__file__).parents[2]


def _introduction(folder: Path, surveyed: Path) -> str:
    if surveyed == folder:
        return f"Surveying {folder} with a tree of agents. Three of them misbehave; watch what happens.\n"
    return f"{folder} is empty, so the demo surveys its own source. Three of its agents misbehave; watch what happens.\n"


def _say(result: "Return", parts: "list[Part]", records: "list[Record]", seconds: float, as_json: bool) -> None:
    from remit.cli.documents import record_document
    from remit.cli.output import say_json

    if as_json:
        report = (result.data or {}).get("report") if result.ok else None
        say_json(
            {
                "ok": all(part.is_kept for part in parts),
                "session_id": result.session_id,
                "seconds": round(seconds, 3),
                "parts": [part.to_dict() for part in parts],
                "report": report,
                "return": result.to_dict(),
                "tree": [record_document(record) | {"parameters": {}} for record in records],
            }
        )
        return
    _print(result, parts, records)
    _print_next()


def _print(result: "Return", parts: "list[Part]", records: "list[Record]") -> None:
    from rich.padding import Padding
    from rich.text import Text

    from remit.cli.output import console, say
    from remit.cli.tree import View, draw, forest

    for root in forest(records):
        console().print(draw(root, View(now=time.time(), rows=30, ids=False)))
    say("\nWhat you saw")
    for part in parts:
        line = Text("  ✓ " if part.is_kept else "  ✗ ", style="green" if part.is_kept else "bold red")
        console().print(line.append(part.title, style="bold"))
        console().print(Padding(Text(part.detail), (0, 0, 0, 4), expand=False))
    say(f"\nSession {result.session_id}. The report: {(result.data or {}).get('report', '-') if result.ok else '-'}\n")


def _print_next() -> None:
    from remit.cli.output import console, program, put, say

    remit = program()
    say("Try next")
    for command, about in NEXT.items():
        put(console(), about, f"  {remit} {command:<10}  ")
    say(OWN_AGENT)
    say(f"and call it: {remit} delegate hello name=Ada")
