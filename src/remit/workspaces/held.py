"""Settings by which git runs commands, held to what they were when a room was made.

Whoever works in a worktree can write the repository's configuration. What it sets there must not run in our git: outside of its
processes, and after its end. Filters and merge drivers are put back to what they were; an object that is missing is fetched only where
that was so before. Everything else that git would run is switched off outright (`git`). Used by `making`, `changes` and `merging`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from remit.workspaces.git import Git

_NAMES = (
    r"^(filter\..*|merge\..*\.driver"
    r"|remote\..*|extensions\.partialclone|core\.(sshcommand|gitproxy|askpass)|protocol\..*|url\..*|credential\..*|ssh\..*)$"
)
_PLAIN_MERGE = "git merge-file -q --marker-size=%L %A %O %B"
"""What git does without a driver. An empty one would take our side and lose the other."""


class Settings(NamedTuple):
    commands: Mapping[str, str]
    """Filters and merge drivers, by name."""
    fetching: str
    """A digest of how missing objects are fetched (addresses may hold passwords); empty where they are not."""


def settings_of(git: Git) -> Settings:
    commands: dict[str, str] = {}
    fetching: list[str] = []
    for entry in git.code("config", "-z", "--get-regexp", _NAMES)[1].decode(errors="surrogateescape").split("\0"):
        name, has_value, value = entry.partition("\n")
        if name.startswith(("filter.", "merge.")):
            commands[name] = value if has_value else "true"
        elif name:
            fetching.append(entry)
    is_partial = any(entry.startswith("extensions.partialclone\n") or ".promisor" in entry for entry in fetching)
    return Settings(commands, hashlib.sha256("\0".join(fetching).encode(errors="surrogateescape")).hexdigest() if is_partial else "")


def held(git: Git, before: Settings) -> Git:
    """Git with these settings as they were; `overrides` names those that were changed since."""
    now = settings_of(git)
    names = sorted(name for name in {*now.commands, *before.commands} if now.commands.get(name) != before.commands.get(name))
    overrides = tuple((name, before.commands.get(name, _PLAIN_MERGE if name.startswith("merge.") else "")) for name in names)
    return replace(git, overrides=overrides, may_fetch=bool(before.fetching) and now.fetching == before.fetching)
