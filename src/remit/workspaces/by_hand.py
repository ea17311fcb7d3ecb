"""What a person does with a room whose delegation has ended: merge its work, or throw it away. Used by the command line.

Whether the delegation has ended is the caller's to know; that nobody goes on in the room meanwhile is seen to here.
"""

import time

from remit.core.errors import Unavailable
from remit.system.files import file_lock
from remit.workspaces.changes import take_changes
from remit.workspaces.git import LOCK_WAIT_SECONDS
from remit.workspaces.looking import look
from remit.workspaces.merging import MERGING_SECONDS, Intent, Merged, merge
from remit.workspaces.removing import remove
from remit.workspaces.room import CLEARING, LOCK, Room, noted_room


def discard(room: Room) -> None:
    """Folder and branch, whatever is in them."""
    with file_lock(room.books / LOCK, timeout=LOCK_WAIT_SECONDS):
        if noted_room(room.root, room.session_id) != room:
            raise Unavailable("Somebody goes on in it, or has removed it.", advice="Look again: remit workspaces")
        (room.books / CLEARING).touch()
        remove(room, with_branch=True)
    if room.tree.exists():
        raise Unavailable(f"{room.tree} could not be removed wholly.", advice="Look at the rights of what is in it, then try again.")


def merge_by_hand(room: Room, message: str) -> Merged:
    """Bring its changes into the branch that is checked out in the project, as `merge = true` does. Nothing is removed."""
    if not room.branch:
        return Merged(is_done=False, reason="it is a copy, which has no branch; its diff can be applied with git apply")
    if room.host:
        return Merged(is_done=False, reason=f"it began from the workspace of {room.host}, and its branch holds that one's work too")
    stop_at = time.monotonic() + MERGING_SECONDS
    changes = take_changes(room, message=message, diff_in=None, seconds=MERGING_SECONDS)
    if changes.doubt or changes.commit is None:
        return Merged(is_done=False, reason=changes.doubt or "its changes could not be taken")
    if not changes.count:
        return Merged(is_done=False, reason="nothing was changed in it")
    return merge(room, changes.commit, Intent(), seconds=stop_at - time.monotonic())


def discard_merged(room: Room) -> str:
    """Remove it when the project has all of it; else why it stays."""
    seen = look(room)
    if seen.is_needed:
        return f"what git ignores was not merged: {', '.join(seen.ignored[:5])}" if seen.ignored else seen.doubt or "it was changed since"
    discard(room)
    return ""
