"""Which conversation is meant: by its id or a part of it, the latest, or a new one. Used by `ask`, `chat` and `conversations`."""

from pathlib import Path

from remit.core.errors import Misused


def picked(folder: Path, named: str | None, *, latest: bool, new: bool = False) -> str | None:
    """Its id; None: a new one. Raises `Misused` where there is none like that."""
    if sum((named is not None, latest, new)) > 1:
        raise Misused("--conversation, --continue and --new exclude one another.", advice="Name one conversation, or none for a new one.")
    if named is None and not latest:
        return None
    from remit.assistant.conversations import Conversations

    kept = Conversations(folder)
    if named is not None:
        return kept.open(named).conversation_id
    found = kept.latest()
    if found is None:
        raise Misused("There is no conversation yet.", advice='Begin one: remit ask "…", or remit chat.')
    return found.conversation_id
