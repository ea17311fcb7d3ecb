"""Commands for operators: `backup`, `restore`, `prune`, `store copy`, `fetch`."""

import asyncio
import contextlib
import os
import sqlite3
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from remit.cli.arguments import DryRun, Session, parse_time
from remit.cli.exits import Exit
from remit.cli.project import Project, find_session
from remit.cli.render import count, moment, say_aside
from remit.core.errors import Misused, Refused, Unavailable
from remit.core.ports import Store
from remit.core.settings import Settings
from remit.core.states import State
from remit.stores import must_have_no_password, without_password
from remit.stores.rows import TABLES, Row, fit_columns
from remit.system.files import temporary_folder, walk
from remit.system.liveness import living_owners
from remit.system.settings_files import load_settings

if TYPE_CHECKING:
    from remit.stores.postgres import PostgresStore
    from remit.stores.sqlite import SqliteStore

    CopiedStore = PostgresStore | SqliteStore

DATABASE = ".remit/remit.db"
SAVED = (".remit", "specs", "remit.toml")
_NOT_SAVED = (".remit/run", ".remit/work", DATABASE)
"""Sockets and pipes; worktrees, whose work is on branches; the database, which SQLite itself copies."""
_LOGS = (f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal")
PAGE = 10_000
COPIED_AT_ONCE = 1_000


# ---- backup


def backup(
    project: Project,
    file: Annotated[Path | None, Argument(metavar="FILE", help="Default: remit-PROJECT-TIME.zip in this folder.")] = None,
) -> Exit:
    """Write the record, settings and board of this project to one file, also while work runs.

    Contains .remit (without sockets and worktrees), specs and remit.toml. Only its owner can read it: it contains output of agents."""
    if (url := project.settings.store.url) is not None:
        raise Misused(
            f"The record is in PostgreSQL ({without_password(url)}).",
            advice=f"Back it up there: pg_dump --schema={project.settings.store.schema} …",
        )
    if not (project.folder / "remit.db").exists():
        raise Misused(f"There is nothing to back up: {project.root} has no record yet.", advice="Start with `remit demo`.")
    target = (file or Path(f"remit-{project.root.name}-{time.strftime('%Y%m%d-%H%M%S')}.zip")).absolute()
    if target.exists() or not target.parent.is_dir():
        raise Misused(f"{target} exists." if target.exists() else f"There is no folder {target.parent}.", advice="Name another file.")
    part = target.with_name(f".{target.name}.part")
    try:
        with TemporaryDirectory(prefix="remit-backup-") as folder:
            copy = Path(folder) / "remit.db"
            _copy_database(project.folder / "remit.db", copy)
            names = _write_archive(project.root, part, copy)
        os.rename(part, target)
    finally:
        part.unlink(missing_ok=True)
    size = target.stat().st_size
    document = {"file": str(target), "files": names, "bytes": size}
    return project.answer(
        document, f"Wrote {target}: {count(names, 'file')}, {size / 1e6:.1f} MB.\nRestore it: remit restore {target.name}"
    )


def _copy_database(source: Path, target: Path) -> None:
    """Copy with SQLite's backup API: consistent while other processes write."""
    try:
        with (
            contextlib.closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as from_,
            contextlib.closing(sqlite3.connect(target)) as to,
        ):
            from_.backup(to, pages=PAGE)
    except sqlite3.Error as error:
        raise Unavailable(
            f"Cannot copy {source}: {error}.", code="STORE_UNAVAILABLE", advice="`remit doctor` checks the database."
        ) from error


def _write_archive(root: Path, target: Path, database: Path) -> int:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
        archive.write(database, DATABASE)
        for path in _files(root):
            with contextlib.suppress(FileNotFoundError):  # removed since it was listed
                archive.write(path, path.relative_to(root).as_posix())
        return len(archive.namelist())


def _files(root: Path) -> Iterator[Path]:
    """Regular files only. Links are skipped: their targets are not part of the project."""
    for name in SAVED:
        if (root / name).is_file() and not (root / name).is_symlink():
            yield root / name
        for folder, folders, names in walk(root / name):
            here = PurePosixPath(Path(folder).relative_to(root).as_posix())
            folders[:] = [one for one in folders if str(here / one) not in _NOT_SAVED]
            for one in names:
                path = Path(folder) / one
                if str(here / one) not in (*_NOT_SAVED, *_LOGS) and path.is_file() and not path.is_symlink():
                    yield path


# ---- restore


def restore(
    project: Project,
    file: Annotated[Path, Argument(metavar="FILE", help="Written by `remit backup`.")],
    force: Annotated[bool, Option("--force", help="Also where this project has a record: it is set aside, not deleted.")] = False,
) -> Exit:
    """Bring back a backup. Nothing in it runs before `remit trust --adopt`."""
    names = _archived(file)
    present = [name for name in SAVED if (project.root / name).exists() and _would_replace(project.root / name, names)]
    _must_be_idle(project)
    if present and not force:
        raise Refused(
            f"{project.root} has {', '.join(present)} already.", code="INVALID_PARAMETERS",
            advice="Restore into an empty folder (--root DIR), or set the present files aside: remit restore FILE --force",
        )  # fmt: skip
    aside = project.root / f"remit-before-restore-{time.strftime('%Y%m%d-%H%M%S')}"
    with temporary_folder(".remit-restore-", project.root) as folder:
        # `extractall` makes parents by recursion.
        for parent in dict.fromkeys(parent for name in names for parent in reversed(PurePosixPath(name).parents)):
            (folder / parent).mkdir(mode=0o700, exist_ok=True)
        with zipfile.ZipFile(file) as archive:
            archive.extractall(folder, names)
        for name in names:
            os.chmod(folder / name, 0o600)
        for name in present:
            aside.mkdir(exist_ok=True, mode=0o700)
            os.rename(project.root / name, aside / name)
        for name in SAVED:
            if (folder / name).exists():
                os.rename(folder / name, project.root / name)
    document = {"root": str(project.root), "files": len(names), "set_aside": str(aside) if present else None}
    done = f"Restored {count(len(names), 'file')} to {project.root}.\n" + (
        f"The files that were there are in {aside.name}/.\n" if present else ""
    )
    then = "Look at it:  remit history\nUse it:      remit trust --adopt   (then `remit recover` resumes or settles unfinished work)"
    return project.answer(document, done + then)


def _archived(file: Path) -> list[str]:
    """The names in the archive. Raises `Misused` if it is not a backup, or would write outside the project."""
    try:
        with zipfile.ZipFile(file) as archive:
            names, bad = [one.filename for one in archive.infolist() if not one.is_dir()], archive.testzip()
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise Misused(f"{file} is not a backup: {error}.", advice="Name a file that `remit backup` wrote.") from None
    strange = [name for name in names if name.split("/")[0] not in SAVED or ".." in PurePosixPath(name).parts or "\\" in name]
    if bad or strange or DATABASE not in names:
        why = f"{bad} is damaged" if bad else f"it contains {strange[0]}" if strange else f"it lacks {DATABASE}"
        raise Misused(f"{file} is not a whole backup: {why}.", advice="Name a file that `remit backup` wrote.")
    return names


def _would_replace(path: Path, names: list[str]) -> bool:
    """Whether it has content. An empty folder, which `remit` may create, does not count."""
    has_content = path.is_file() or any(name != ".gitignore" for _, _, found in walk(path) for name in found)
    return has_content and any(name.split("/")[0] == path.name for name in names)


def _must_be_idle(project: Project) -> None:
    with project.history() as store:
        if store is not None and living_owners(store, project.folder / "run"):
            raise Refused(
                "Another process works in this project.", code="STORE_UNAVAILABLE", advice="Stop it first: `remit status` shows what runs."
            )


# ---- prune


def prune(
    project: Project,
    older_than: Annotated[str | None, Option("--older-than", metavar="AGE", help="Such as 30d or 12w. Default: `history_days`.")] = None,
    dry_run: DryRun = False,
) -> Exit:
    """Forget finished delegations that are older, with their scratch folders, and remove workspaces that are not needed any more.

    Trees are forgotten whole. What they spent still counts against the budgets of principals; branches, merged work and the board stay."""
    now = time.time()
    days = project.settings.history_days
    if older_than is None and days is None:
        raise Misused("`history_days` is not set, so history is kept for ever.", advice="Name an age: remit prune --older-than 90d")
    before = parse_time(older_than, "--older-than", now) if older_than is not None else now - (days or 0.0) * 86_400
    assert before is not None
    if before >= now:
        raise Misused(f"--older-than {older_than} is not in the past.", advice="Write an age such as 30d.")
    with project.history() as store:
        settled = 0 if store is None else _settled_before(store, before)
    if dry_run or not settled:
        words = f"{count(settled, 'delegation')} from before {moment(before)}"
        return project.answer(
            {"forgotten": 0, "would_forget": settled}, f"Would forget up to {words}." if settled else f"Nothing to forget: {words}."
        )
    return asyncio.run(_prune(project, (now - before) / 86_400))


def _settled_before(store: Store, before: float) -> int:
    """An upper bound: trees with a part that ended later or still runs are kept whole."""
    return sum(number for (_, state), number in store.tally(until=before).states.items() if state not in (State.QUEUED, State.RUNNING))


async def _prune(project: Project, days: float) -> Exit:
    say_aside("Pruning …")
    async with project.open(settings={"history_days": days}) as remit:
        known = remit.store.count()
        await remit.engine.clean_up()
        forgotten = known - remit.store.count()
    text = f"Forgot {count(forgotten, 'delegation')}. The database uses its free pages again."
    return project.answer({"forgotten": forgotten}, text)


# ---- store copy


def store(project: Project) -> Exit:
    """Show where delegations are recorded. `remit store copy` moves the record to another store."""
    with project.history() as found:
        known = 0 if found is None else found.count()
    url, place = project.settings.store.url, str(project.folder / "remit.db")
    url = None if url is None else without_password(url)
    where = place if url is None else f"{url} (schema {project.settings.store.schema})"
    return project.answer({"store": url or place, "delegations": known}, f"{where}: {count(known, 'delegation')}")


def copy(
    project: Project,
    to: Annotated[str, Option("--to", metavar="URL", help="postgresql://HOST/DATABASE, or sqlite.")],
    schema: Annotated[str, Option("--schema", help="Of PostgreSQL.")] = "remit",
) -> Exit:
    """Copy the record of this project to another store. The source is not changed. An interrupted copy is completed.

    Refused while a process works in the project: its later writes would be missing; and into a store that contains another record."""
    must_have_no_password(to, "--to", "--to {}")
    _must_be_idle(project)
    given = {} if to == "sqlite" else {"url": to, "schema": schema}
    target_settings = load_settings(project.root, {"store": given} if given else {"store": {"url": "none"}}, trust=project.trust)
    if target_settings.store == project.settings.store:
        raise Misused("The record is there already.", advice="Name another store.")
    source, target = _open_store(project, project.settings), _open_store(project, target_settings)
    try:
        aside = f"or move the file aside: mv {project.folder}/remit.db {project.folder}/remit.db.before"
        _must_be_part(target, source, aside if to == "sqlite" else "for example an empty schema: --schema NAME")
        copied = {table: _copy_table(source, target, table) for table in TABLES}
    finally:
        source.close()
        target.close()
    lines = "remove [store] from remit.toml."
    if to != "sqlite":
        lines = f'write into remit.toml\n\n[store]\nurl = "{to}"\nschema = "{schema}"\n\nand approve it: remit trust'
    return project.answer({"copied": copied}, f"Copied {count(copied['delegations'], 'delegation')}. To use it from now on, {lines}")


def _open_store(project: Project, settings: "Settings") -> "CopiedStore":
    if settings.store.url is not None:
        from remit.stores import open_postgres

        return open_postgres(settings)
    from remit.stores.sqlite import open_bound

    return open_bound(project.folder / "remit.db", durability=settings.durability, adopts=False)


def _must_be_part(target: "CopiedStore", source: "CopiedStore", advice: str) -> None:
    """Refuse a target with delegations that the source does not have. A copy keeps the order, so one pass over both is enough."""
    expected = (fit_columns(row) for row in source.rows("delegations"))
    for row in target.rows("delegations"):
        if fit_columns(row) not in expected:
            raise Misused(
                f"The target contains another record: {Row(*row).session_id} is not in the record of this project, or has changed.",
                advice=f"Copy to an empty store, {advice}.",
            )


def _copy_table(source: "CopiedStore", target: "CopiedStore", table: str) -> int:
    copied, some = 0, list[tuple[Any, ...]]()
    for row in source.rows(table):
        some.append(row)
        if len(some) == COPIED_AT_ONCE:
            target.add_rows(table, some)
            copied, some = copied + len(some), []
    target.add_rows(table, some)
    return copied + len(some)


# ---- fetch


def fetch(project: Project, session: Session) -> Exit:
    """Fetch the files of a delegation that a worker on another machine ran, of any size, from the object store.

    Files of the project that are not the same, and protected files, are left as they are: move them away to fetch them."""
    from remit.runtime.shipment import FileFetcher
    from remit.stores.blobs import open_blobs

    with project.store() as store:
        record = find_session(store, session)
    report = FileFetcher(open_blobs(project.settings), project.root, record.session_id).fetch(limit_bytes=None)
    document = {"written": report.written, "same": report.same, "refused": report.refused}
    none = None if any(document.values()) else f"No files of {record.session_id} were uploaded."
    return project.answer(document, none, Exit.FAILED if report.refused else Exit.OK)
