"""Which delegations nobody runs any more, and the words for it, of every command that shows delegations (the judgement: `engine.vitals`).

Reads only; what is to be done about it is `remit recover`'s.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from remit.core.ports import Store
from remit.core.record import Record
from remit.engine.vitals import is_gone, living_owners

if TYPE_CHECKING:
    from remit.app import Remit

GONE = "its process is gone: remit recover"


def gone_among(records: Sequence[Record], store: Store, root: Path) -> set[str]:
    """Session ids of those that nobody runs any more."""
    if all(record.state.is_settled for record in records):
        return set()
    living = living_owners(store, root / ".remit" / "run")
    return {record.session_id for record in records if is_gone(record, living)}


async def mind_the_dead(remit: "Remit", key: str | None = None) -> list[str]:
    """Say once that work of dead processes is waiting; nobody's new work takes it over. What was resumed all the same, because `key` asks
    for just that: its sessions."""
    from remit.cli.output import say_aside
    from remit.cli.words import count

    store = remit.store
    live = await asyncio.to_thread(store.live)
    gone = await asyncio.to_thread(gone_among, live, store, remit.root)
    if not gone:
        return []
    holder = None if key is None else await asyncio.to_thread(store.by_key, key)
    if holder is not None and holder.session_id in gone:
        return (await remit.recover()).resumed
    tops = [record for record in live if record.session_id in gone and record.parent_id not in gone]
    say_aside(f"{count(len(tops), 'delegation')} of a process that ended {'is' if len(tops) == 1 else 'are'} waiting: `remit recover`")
    return []
