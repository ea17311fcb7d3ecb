"""`remit recover`: find what dead processes were running, resume or settle it, end what they left behind."""

from typing import TYPE_CHECKING

from remit.cli.exits import Exit
from remit.cli.options import Json, Root

if TYPE_CHECKING:
    from pathlib import Path

    from remit.app import Remit


def recover(root: Root = None, as_json: Json = False) -> Exit:
    """Settle or resume what a crash left, and wait for what was resumed; Ctrl-C stops that."""
    import asyncio

    from remit.cli.output import say, say_json
    from remit.cli.project import NOTHING_YET, find_root, project_folder

    folder = find_root(root)
    if not (project_folder(folder) / "remit.db").exists():
        if as_json:
            say_json({"dead_processes": [], "settled": [], "resumed": [], "killed_processes": 0})
        else:
            say(NOTHING_YET)
        return Exit.OK
    return asyncio.run(_recover(folder, as_json))


async def _recover(folder: "Path", as_json: bool) -> Exit:
    from remit.app import Remit
    from remit.cli.approving import person_here
    from remit.cli.live import wait_for_resumed

    async with Remit.open(folder, approver=person_here()) as remit:  # opening recovers: here is shown what it found
        if not as_json:
            await _print(remit)
        returns = await wait_for_resumed(remit, remit.recovered.resumed, as_json=as_json)
        if as_json:
            await _say_document(remit)
        return Exit.OK if all(result.ok for result in returns) else Exit.PARTIAL


async def _print(remit: "Remit") -> None:
    from remit.cli.output import say
    from remit.cli.words import count, one_line

    found = remit.recovered
    if found.is_empty:
        say("Nothing to recover: nothing was left running by a dead process.")
        return
    say(f"{count(len(found.owners), 'dead process')} found; {count(found.killed, 'process')} they left behind killed.")
    for session_id in found.settled:
        record = await remit.describe(session_id)
        kept = len(record.result.artifacts) if record.result else 0
        words = one_line(record.result.summary, 160) if record.result else ""
        say(f"settled  {session_id}  {record.agent}  {record.state}, {count(kept, 'artifact')} kept. {words}")
    for session_id in found.resumed:
        record = await remit.describe(session_id)
        say(f"resumed  {session_id}  {record.agent}  (run {record.attempt})")


async def _say_document(remit: "Remit") -> None:
    from remit.cli.documents import record_document
    from remit.cli.output import say_json

    found = remit.recovered
    say_json(
        {
            "dead_processes": found.owners,
            "settled": [record_document(await remit.describe(session_id)) for session_id in found.settled],
            "resumed": [record_document(await remit.describe(session_id)) for session_id in found.resumed],
            "killed_processes": found.killed,
        }
    )
