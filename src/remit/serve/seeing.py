"""What is below a delegation, and pages of what may be seen. Functions over the store, for `service`; they block, and decide no rights."""

from collections.abc import Sequence
from dataclasses import replace

from remit.core.errors import Misused
from remit.core.ports import Store
from remit.core.record import HistoryQuery, Record
from remit.engine.vitals import below

MOST_ON_PAGE = 500


def unknown(task_id: str) -> Misused:
    return Misused(
        f"There is no task {task_id[:80]}.", code="TASK_NOT_FOUND", advice="Its id is in the answer that began it; list the tasks."
    )


def is_below(store: Store, record: Record, session_id: str) -> bool:
    """Itself, what it asked for, or anything further down."""
    if session_id in (record.session_id, record.parent_id):
        return True
    node: Record | None = record
    while node is not None and node.parent_id is not None:
        if node.parent_id == session_id:
            return True
        node = store.get(node.parent_id)
    return False


def listed(store: Store, query: HistoryQuery, parent: str | None) -> tuple[Sequence[Record], str | None]:
    """A page, and where the next one begins; with `parent` of what is below that one."""
    size = min(max(1, query.limit), MOST_ON_PAGE)
    asked = replace(query, limit=size + 1)
    found = store.history(asked) if parent is None else _found_below(store, asked, parent)
    return found[:size], found[size - 1].session_id if len(found) > size else None


def _found_below(store: Store, query: HistoryQuery, parent: str) -> list[Record]:
    """A tree is small: it is searched whole."""
    root = store.get(parent)
    if root is None or query.root_id not in (None, root.root_id):
        return []
    inside = {record.session_id for record in below(store.tree(root.root_id), parent)} - {parent}
    found: list[Record] = []
    page = replace(query, root_id=root.root_id, principal=None, roots_only=False, limit=MOST_ON_PAGE)
    while len(found) < query.limit:
        records = store.history(page)
        found += [record for record in records if record.session_id in inside]
        if len(records) < MOST_ON_PAGE:
            break
        page = replace(page, before_session=records[-1].session_id)
    return found[: query.limit]
