"""The declarations of a project as they are now: read once when it is opened, and again when one of its files has changed.

Blocking, and safe on any thread: it changes nothing but what it remembers of the files. `agents.directory` puts in what is read.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from remit.agents.definition import Definition
from remit.agents.files import Declarations, all_joined, declarations_of
from remit.agents.watching import Look, look
from remit.core.errors import RemitError
from remit.settings import Settings

SLOW_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    declarations: Declarations
    definitions: tuple[Definition, ...]
    problems: tuple[str, ...]
    seen: Look
    after: Look | None
    """Of what was known when this was read: if that is not what is known any more, somebody else was quicker."""


class ProjectFiles:
    def __init__(self, root: Path, settings: Settings, reload: Callable[[], Settings] | None = None) -> None:
        """`reload` reads the settings anew, of which `[agents]`, `[roles]` and `profiles_on` are taken; None: they stay as they are."""
        self._root = root
        self._settings = settings
        self._reload = reload
        self._known: Read | None = None
        self._took = 0.0
        self._looked_at = -math.inf

    @property
    def is_slow(self) -> bool:
        """Whether reading takes so long that whoever lists agents on the event loop must not wait for it."""
        return self._took > SLOW_SECONDS

    @property
    def looked_seconds_ago(self) -> float:
        return time.monotonic() - self._looked_at

    def read(self) -> Read:
        """As it is now."""
        began = time.monotonic()
        try:
            return self._read()
        finally:
            self._took = time.monotonic() - began

    def _read(self) -> Read:
        known = self._known
        also = known.declarations.also_read if known is not None else ()
        seen = look(self._root, also)  # before anything is read: what changes meanwhile is seen the next time
        settings, fault = self._settings_now(known)
        declarations = declarations_of(self._root, settings, known.declarations if known is not None else None)
        if declarations.also_read != also:
            seen = look(self._root, declarations.also_read)
            seen = replace(seen, is_settled=False)
        if not declarations.is_done:
            seen = replace(seen, is_settled=False)
        definitions, problems = all_joined(declarations)
        return Read(
            declarations=declarations,
            definitions=tuple(definitions),
            problems=(*fault, *problems),
            seen=seen,
            after=None if known is None else known.seen,
        )

    def changed(self) -> Read | None:
        """What is declared now, if any file is not what it was; None: nothing has changed."""
        known = self._known
        self._looked_at = time.monotonic()
        if known is not None and known.seen.is_settled and look(self._root, known.declarations.also_read).files == known.seen.files:
            return None
        return self.read()

    def keep(self, read: Read) -> bool:
        """This is what is known from now on; False: something newer is known already."""
        if self._known is not None and read.after is not self._known.seen:
            return False
        self._known = read
        return True

    def _settings_now(self, known: Read | None) -> tuple[Settings, tuple[str, ...]]:
        if known is None or self._reload is None:
            return self._settings if known is None else known.declarations.settings, ()
        before = known.declarations.settings
        try:
            now = self._reload()
        except RemitError as error:
            return before, (f"The settings cannot be read any more, and hold as they were: {error}",)
        return replace(before, agents=now.agents, roles=now.roles, profiles_on=now.profiles_on, sources=now.sources), ()
