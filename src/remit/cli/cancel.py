"""`remit cancel`: stop a delegation and everything below it, whichever process runs it; how each node ended."""

from typing import TYPE_CHECKING, Annotated

import typer

from remit.cli.exits import Exit
from remit.cli.options import Json, Root, Session

if TYPE_CHECKING:
    from pathlib import Path


def cancel(
    session: Session,
    reason: Annotated[str, typer.Option(help="Why: it is recorded and shown in the return.")] = "",
    root: Root = None,
    as_json: Json = False,
) -> Exit:
    """Stop a delegation and everything below it."""
    import asyncio

    from remit.cli.project import find_root, find_session, need_record, open_record

    folder = find_root(root)
    with open_record(folder) as store:
        record = find_session(need_record(store), session)
        session_id = record.session_id
        if record.state.is_settled:  # known without opening anything
            return _said([{"session_id": session_id, "agent": record.agent, "state": f"already {record.state}"}], session_id, as_json)
    return asyncio.run(_cancel(folder, session_id, reason, as_json))


async def _cancel(folder: "Path", session_id: str, reason: str, as_json: bool) -> Exit:
    import asyncio

    from remit.app import Remit
    from remit.cli.live import wait_for_resumed
    from remit.cli.living import gone_among

    async with Remit.open(folder, recover=False) as remit:
        record = await remit.describe(session_id)
        resumed: list[str] = []
        if await asyncio.to_thread(gone_among, [record], remit.store, folder):  # nobody is there to ask: it must be taken over first
            resumed = (await remit.recover()).resumed
        nodes = await remit.cancel(session_id, reason)
        code = _said(nodes, session_id, as_json)
        await wait_for_resumed(remit, [one for one in resumed if one != session_id], as_json=as_json)
        return code


def _said(nodes: list[dict[str, str]], session_id: str, as_json: bool) -> Exit:
    from remit.cli.output import say, say_json

    is_unfinished = any(node["state"] == "stopping" for node in nodes)
    if as_json:
        say_json({"session_id": session_id, "nodes": nodes})
    else:
        for node in nodes:
            say(f"{node['session_id']}  {node['agent']}  {node['state']}")
        if is_unfinished:
            say("Not everything has ended yet: look again with `remit status`.")
    return Exit.PARTIAL if is_unfinished else Exit.OK
