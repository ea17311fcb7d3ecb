"""What was read before: facts by path, size, time and inode, in `.remit/cache/analysis.db`. Only a saving: nothing depends on it.

A damaged one is thrown away and made anew; one that cannot be used (read-only, busy, a link that leads elsewhere) is done without.
Several processes may use it at once. A file changed so lately that its time could not tell another change is not trusted the next time.
"""

import contextlib
import os
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from remit.agents.builtin.coder.analysis.listing import Listed

FACTS_VERSION = 6
"""Raised whenever facts are read differently: what was kept before is then worth nothing."""
_RACY_NS = 20_000_000
_KEEP_SECONDS = 30 * 86400
_BUSY_SECONDS = 5.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS trees (tree INTEGER PRIMARY KEY, root TEXT NOT NULL UNIQUE, used REAL NOT NULL);
CREATE TABLE IF NOT EXISTS facts (
    tree INTEGER NOT NULL, path BLOB NOT NULL, size INTEGER NOT NULL, mtime INTEGER NOT NULL, changed INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    kind TEXT NOT NULL, gist TEXT NOT NULL, symbols TEXT NOT NULL, PRIMARY KEY (tree, path)
);
"""


class Kept(NamedTuple):
    one: Listed
    gist: str
    symbols: str


class Cache:
    """Blocking; one thread. Whatever goes wrong with the file turns it off."""

    def __init__(self, folder: Path | None, root: Path) -> None:
        self._tree = 0
        self._connection: sqlite3.Connection | None = None
        if folder is not None:
            with contextlib.suppress(OSError, sqlite3.Error):
                self._open(_own_folder(folder) / "analysis.db", str(root))

    @property
    def is_on(self) -> bool:
        return self._connection is not None

    def _open(self, path: Path, root: str) -> None:
        for attempt in range(2):
            if path.is_symlink():
                return
            connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
            try:
                self._tree = _prepared(connection, root)
                self._connection = connection
                return
            except sqlite3.OperationalError:
                connection.close()
                raise  # busy, full or read-only: not damaged
            except sqlite3.DatabaseError:
                connection.close()
                if attempt == 0:
                    _remove(path)

    def known(self, below: str) -> "Iterator[tuple[str, tuple[int, int, int, int, str], str]]":
        """Path, what it was kept for (size, time, inode, kind), gist."""
        asked = "SELECT path, size, mtime, changed, inode, kind, gist FROM facts WHERE tree = ?"
        for path, size, mtime, changed, inode, kind, gist in self._rows(asked):
            name = _text(path)
            if not below or name == below or name.startswith(below + "/"):
                yield name, (size, mtime, changed, inode, kind), gist

    def facts(self) -> Iterator[tuple[str, str, str]]:
        """All that is kept: path, gist, symbols, ordered by path."""
        for path, gist, symbols in self._rows("SELECT path, gist, symbols FROM facts WHERE tree = ? ORDER BY path"):
            yield _text(path), gist, symbols

    def keep(self, read: Iterable[Kept]) -> bool:
        """Whether it is kept."""
        late = time.time_ns() - _RACY_NS
        rows = []
        for one, gist, symbols in read:
            mtime = one.mtime_ns if one.mtime_ns < late else -1
            rows.append((self._tree, os.fsencode(one.path), one.size, mtime, one.changed_ns, one.inode, one.kind, gist, symbols))
        return self._write("INSERT OR REPLACE INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def forget(self, paths: Iterable[str]) -> None:
        self._write("DELETE FROM facts WHERE tree = ? AND path = ?", [(self._tree, os.fsencode(path)) for path in paths])

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _rows(self, statement: str) -> Iterator[tuple[Any, ...]]:
        if self._connection is None:
            return
        try:
            yield from self._connection.execute(statement, (self._tree,))
        except sqlite3.DatabaseError:
            self._give_up()

    def _write(self, statement: str, rows: list[tuple[Any, ...]]) -> bool:
        if self._connection is None or not rows:
            return False
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(statement, rows)
            self._connection.execute("COMMIT")
            return True
        except sqlite3.OperationalError:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
        except sqlite3.DatabaseError:
            self._give_up()
        return False

    def _give_up(self) -> None:
        """It broke while in use: the next run begins with a new one."""
        path = None
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                path = self._connection.execute("PRAGMA database_list").fetchone()[2]
        self.close()
        if path:
            _remove(Path(path))


def _own_folder(folder: Path) -> Path:
    """Made where it is missing. A link that stands in its place leads nowhere."""
    for part in (folder.parent, folder):
        if not part.is_dir():
            part.mkdir(parents=True, exist_ok=True)
        if not stat.S_ISDIR(os.lstat(part).st_mode):
            raise NotADirectoryError(part)
    return folder


def _prepared(connection: sqlite3.Connection, root: str) -> int:
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version not in (0, FACTS_VERSION):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DROP TABLE IF EXISTS facts")
        connection.execute("DROP TABLE IF EXISTS trees")
        connection.execute("COMMIT")
    connection.executescript(_SCHEMA)
    connection.execute(f"PRAGMA user_version={FACTS_VERSION}")
    now = time.time()
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO trees (root, used) VALUES (?, ?) ON CONFLICT (root) DO UPDATE SET used = excluded.used", (root, now))
    connection.execute("DELETE FROM facts WHERE tree IN (SELECT tree FROM trees WHERE used < ?)", (now - _KEEP_SECONDS,))
    connection.execute("DELETE FROM trees WHERE used < ?", (now - _KEEP_SECONDS,))
    tree: int = connection.execute("SELECT tree FROM trees WHERE root = ?", (root,)).fetchone()[0]
    connection.execute("COMMIT")
    return tree


def _remove(path: Path) -> None:
    for suffix in ("-wal", "-shm", "-journal", ""):
        with contextlib.suppress(OSError):
            os.unlink(f"{path}{suffix}")


def _text(path: object) -> str:
    return os.fsdecode(path) if isinstance(path, bytes | str) else ""
