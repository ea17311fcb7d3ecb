"""A record in PostgreSQL: a project like any other, shared by several processes, and copied from and to SQLite."""

import asyncio
import contextlib
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from remit import (
    CallerInfo,
    Context,
    RecordDelegation,
    Remit,
    RemitError,
    SqliteStore,
    State,
    Write,
    agent,
    call,
)
from remit.core.record import Spending
from remit.stores import postgres
from remit.stores.postgres import PostgresStore
from remit.stores.rows import COLUMNS, TABLES, Row, row_of
from remit.testing.store_suite import outcome, record, said
from support import cli
from support.network import Proxy
from support.postgres import PostgresServer, new_schema, postgres_server


@pytest.fixture
def server(postgres: PostgresServer) -> str:
    return postgres.url


@pytest.fixture
def project(tmp_path: Path, server: str) -> Path:
    root = tmp_path / "shop"
    root.mkdir()
    (root / "remit.toml").write_text(f'[store]\nurl = "{server}"\nschema = "{new_schema()}"\n')
    return root


@agent("echo")
async def echo(text: str) -> str:
    return text


@agent("tree")
async def tree(ctx: Context) -> str:
    done = await ctx.gather(*(call("echo", text=str(number)) for number in range(3)))
    return " ".join(one.summary for one in done)


@agent("sleeper", timeout=60)
async def sleeper(ctx: Context) -> str:
    ctx.progress("asleep")
    await asyncio.sleep(50)
    return "awake"


SCRIPT = """
import asyncio, sys
from remit import Context, Remit, agent

@agent("sleeper", timeout=60)
async def sleeper(ctx: Context) -> str:
    ctx.progress("asleep")
    await asyncio.sleep(50)
    return "awake"

async def main() -> None:
    async with Remit.open(sys.argv[1], agents=[sleeper], trust=True) as remit:
        handle = await remit.start("sleeper")
        print(handle.session_id, flush=True)
        done = await handle.result()
        print(done.status, done.stop_reason, flush=True)

asyncio.run(main())
"""


@contextlib.contextmanager
def sleeping(project: Path) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """Another process, and its session."""
    with subprocess.Popen([sys.executable, "-I", "-c", SCRIPT, str(project)], stdout=subprocess.PIPE, text=True) as worker:
        yield worker, worker.stdout.readline().strip()  # type: ignore[union-attr]


async def test_delegations_are_recorded_and_found_by_every_command(project: Path) -> None:
    async with Remit.open(project, agents=[echo, tree]) as remit:
        done = await remit.delegate("tree")
        assert (done.status, done.summary) == ("completed", "0 1 2")
        assert len(await remit.tree(done.session_id)) == 4
    assert not (project / ".remit" / "remit.db").exists()
    listed = await asyncio.to_thread(cli.run_json, "history", cwd=project)
    assert [one["agent"] for one in listed["delegations"]] == ["tree"]
    shown = await asyncio.to_thread(cli.run_json, "show", "last", cwd=project)
    assert shown["delegation"]["session_id"] == done.session_id
    assert "PostgreSQL" in cli.run("backup", cwd=project).stderr


async def test_another_process_can_follow_and_cancel(project: Path) -> None:
    with sleeping(project) as (worker, session):
        async with Remit.open(project, recover=False) as remit:
            (record,) = await remit.live()
            assert (record.session_id, str(record.state)) == (session, "running")
            nodes = await remit.cancel(session, "not needed")
            assert [node["session_id"] for node in nodes] == [session]
        assert "cancelled" in worker.communicate(timeout=30)[0]
        assert worker.returncode == 0


async def test_work_of_a_killed_process_is_settled_by_the_next_process(project: Path) -> None:
    with sleeping(project) as (worker, session):
        worker.kill()
    async with Remit.open(project, agents=[sleeper]) as remit:
        record = await remit.describe(session)
        assert (str(record.state), record.result and record.result.stop_reason) == ("partial", "crashed")


async def test_work_of_another_machine_is_not_settled(project: Path, server: str) -> None:
    async with Remit.open(project, agents=[sleeper]) as remit:
        handle = await remit.start("sleeper")
        with psycopg.connect(server, autocommit=True) as connection:
            schema = remit.settings.store.schema
            moved = f"UPDATE {schema}.owners SET host='elsewhere', pid=1, pid_started='another-boot:1'"
            assert connection.execute(moved).rowcount == 1
        async with Remit.open(project, agents=[sleeper]) as other:
            assert (await other.describe(handle.session_id)).state == "running"
            await other.cancel(handle.session_id)
        assert (await handle.result()).stop_reason == "cancelled"


@pytest.mark.parametrize("how", ["restart", "cut"])
async def test_database_outage_loses_and_repeats_nothing(tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    ran: list[int] = []
    all_run, gate = asyncio.Event(), asyncio.Event()

    @agent("gated", timeout=120)
    async def gated(ctx: Context, n: int) -> int:
        ran.append(n)
        if len(ran) == 20:
            all_run.set()
        await gate.wait()
        return n

    with postgres_server() as server, contextlib.closing(Proxy(server.port)) as proxy:
        url = server.url.replace(str(server.port), str(proxy.port))
        async with Remit.open(tmp_path, agents=[gated], settings={"store": {"url": url}}) as remit:
            handles = [await remit.start("gated", n=number) for number in range(20)]
            await all_run.wait()
            proxy.cut() if how == "cut" else server.stop(signal.SIGQUIT)
            gate.set()  # all end while nothing can be written
            with pytest.raises(RemitError, match="PostgreSQL") as refused:
                await remit.delegate("gated", n=99)
            assert refused.value.code == "STORE_UNAVAILABLE"
            await asyncio.sleep(2.5 * postgres.LISTEN_SECONDS)
            proxy.restore() if how == "cut" else server.start()
            assert sorted([(await handle.result()).data for handle in handles]) == list(range(20))
            assert (await remit.delegate("gated", n=100)).data == 100
            end = asyncio.get_running_loop().time() + 60
            while (states := [str(one.state) for one in await remit.history(limit=100)]) != ["completed"] * 21:
                assert asyncio.get_running_loop().time() < end, states
                await asyncio.sleep(0.1)
    assert sorted(ran) == [*range(20), 100]
    assert sum("Lost the connection that notifies" in said for said in caplog.messages) == 1, "once for the outage"


async def test_database_that_does_not_answer_delays_no_return(tmp_path: Path, server: str) -> None:
    """Connections stay open. Adaptive limits, which are read from the record, do not wait for it either."""
    port = int(str(conninfo_to_dict(server)["port"]))
    gate, runs = asyncio.Event(), asyncio.Event()

    @agent("gated", timeout=120)
    async def gated(ctx: Context) -> str:
        runs.set()
        await gate.wait()
        return "done"

    with contextlib.closing(Proxy(port)) as proxy:
        settings = {"store": {"url": server.replace(str(port), str(proxy.port)), "schema": new_schema()}, "adaptive_limits": "on"}
        async with Remit.open(tmp_path, agents=[gated, echo], settings=settings) as remit:
            handle = await remit.start("gated")
            await runs.wait()
            proxy.stall()
            gate.set()
            late = await asyncio.wait_for(remit.delegate("echo", text="x", timeout=1), 60)
            done = await asyncio.wait_for(handle.result(), 60)
            proxy.restore()
            assert (late.errors[0].code, done.data) == ("TIMEOUT", "done")
            while remit.store.live():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert (await remit.describe(handle.session_id)).state == "completed"


def test_connection_errors_are_named_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with postgres_server() as server:
        PostgresStore(server.url).close()
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("UPDATE remit.remit_version SET version=999")
        with pytest.raises(RemitError, match=r"written by a newer remit \(schema 999.*Upgrade"):
            PostgresStore(server.url)
        with pytest.raises(RemitError, match=r"does not exist.*createdb"):
            PostgresStore(f"{server.url}_missing")
        server.need_password()
        for password in (None, "wrong"):
            monkeypatch.delenv("PGPASSWORD", raising=False) if password is None else monkeypatch.setenv("PGPASSWORD", password)
            with pytest.raises(RemitError, match="PGUSER and PGPASSWORD") as refused:
                PostgresStore(server.url, schema="other")
            assert "wrong" not in str(refused.value)
        monkeypatch.setenv("PGPASSWORD", "right")
        PostgresStore(server.url, schema="other").close()


def test_commit_with_a_lost_reply_is_recognised(server: str) -> None:
    store = PostgresStore(server, schema=new_schema())
    store.owner_id = "one"
    with contextlib.closing(store):
        store.apply([RecordDelegation(record(1))])
        assert not store.apply([RecordDelegation(record(1))]).clashes
        store.apply([outcome(1)])
        assert not store.apply([outcome(1)]).already_settled
        assert store.apply([RecordDelegation(record(1, created_at=5.0))]).clashes


def test_record_can_be_copied_to_postgresql_and_back(tmp_path: Path, server: str) -> None:
    root, schema = tmp_path / "shop", new_schema()
    root.mkdir()
    for number in range(3):
        assert cli.run("delegate", "worker.write_file", f"path={number}.txt", "content=x", cwd=root).code == 0
    before = cli.run_json("history", cwd=root)
    assert cli.run_json("store", "copy", "--to", server, "--schema", schema, cwd=root)["copied"]["delegations"] == 3
    (root / "remit.toml").write_text(f'[store]\nurl = "{server}"\nschema = "{schema}"\n')
    assert cli.run_json("history", cwd=root) == before
    assert cli.run("delegate", "worker.list_files", cwd=root).code == 0
    assert cli.run_json("store", "copy", "--to", "sqlite", cwd=root)["copied"]["delegations"] == 4
    (root / "remit.toml").unlink()
    assert len(cli.run_json("history", cwd=root)["delegations"]) == 4


@pytest.mark.parametrize("change", [outcome(2), RecordDelegation(record(3))], ids=["changed", "foreign"])
@pytest.mark.parametrize("to", ["postgres", "sqlite"])
def test_copy_into_another_record_is_refused(tmp_path: Path, server: str, to: str, change: Write) -> None:
    """A delegation of another project, or one that went on after it was copied. The same record once more is accepted."""
    database, schema = tmp_path / ".remit" / "remit.db", new_schema()
    assert cli.run("delegate", "worker.list_files", cwd=tmp_path).code == 0
    with contextlib.closing(SqliteStore(database)) as file:
        file.apply([RecordDelegation(record(1, agent="has\0NUL, unlike PostgreSQL")), RecordDelegation(record(2))])
    words = ["--to", server, "--schema", schema]
    assert cli.run("store", "copy", *words, cwd=tmp_path).code == 0
    if to == "sqlite":
        (tmp_path / "remit.toml").write_text(f'[store]\nurl = "{server}"\nschema = "{schema}"\n')
        words = ["--to", "sqlite"]
    assert cli.run("store", "copy", *words, cwd=tmp_path).code == 0
    with contextlib.closing(SqliteStore(database) if to == "sqlite" else PostgresStore(server, schema=schema)) as target:
        target.apply([change])
        before = [sorted(target.rows(table)) for table in TABLES]
    refused = cli.run("store", "copy", *words, cwd=tmp_path)
    assert refused.code == 2
    assert f"another record: {change.session_id} is not in" in refused.stderr
    assert ("--schema NAME" if to == "postgres" else f"mv {database} ") in refused.stderr
    with contextlib.closing(SqliteStore(database) if to == "sqlite" else PostgresStore(server, schema=schema)) as target:
        assert [sorted(target.rows(table)) for table in TABLES] == before


@pytest.mark.parametrize("to", ["postgres", "sqlite"])
def test_copy_that_is_killed_is_completed_by_the_next(tmp_path: Path, server: str, to: str) -> None:
    """Nothing is lost, nothing is there twice, and the source stays as it is."""
    schema, settings = new_schema(), tmp_path / "remit.toml"
    assert cli.run("delegate", "worker.list_files", cwd=tmp_path).code == 0  # the database is this user's own
    with contextlib.closing(SqliteStore(tmp_path / ".remit" / "remit.db")) as file:
        numbers = range(9_000)
        file.apply([RecordDelegation(record(n, caller_info=CallerInfo("token:one"))) for n in numbers])
        file.apply([write for n in numbers for write in (said(n, 8, chunk=n), outcome(n, chunks=1))])
    there = PostgresStore(server, schema=schema)
    if to == "sqlite":
        assert cli.run("store", "copy", "--to", server, "--schema", schema, cwd=tmp_path).code == 0
        settings.write_text(f'[store]\nurl = "{server}"\nschema = "{schema}"\n')
        (tmp_path / ".remit" / "remit.db").unlink()
    words = ["--to", "sqlite"] if to == "sqlite" else ["--to", server, "--schema", schema]
    kills = 0
    for least in (1, 3_000):
        process = subprocess.Popen([sys.executable, "-I", "-m", "remit", "store", "copy", *words], cwd=tmp_path, stdout=subprocess.DEVNULL)
        while process.poll() is None and copied(tmp_path, None if to == "sqlite" else there) < least:
            time.sleep(0.002)
        process.kill()
        kills += process.wait() == -signal.SIGKILL
    assert kills
    assert cli.run("store", "copy", *words, cwd=tmp_path).code == 0
    with contextlib.closing(there), contextlib.closing(SqliteStore(tmp_path / ".remit" / "remit.db")) as file:
        for table in TABLES:
            assert sorted(file.rows(table)) == sorted(there.rows(table))
        assert file.count() == 9_001
        assert file.spent("token:one") == there.spent("token:one") == Spending(9_000, 108_000, 4_500.0, 1000.0)


def copied(root: Path, there: PostgresStore | None) -> int:
    if there is not None:
        return there.count()
    try:
        with contextlib.closing(sqlite3.connect(f"file:{root}/.remit/remit.db?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT count(*) FROM delegations").fetchone()[0])
    except sqlite3.Error:
        return 0


def test_schema_of_an_older_remit_is_migrated_once(server: str) -> None:
    schema = new_schema()
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"SET search_path={schema}")
        connection.execute(files("remit.stores").joinpath("sql", "postgres_001.sql").read_text())
        connection.execute("CREATE TABLE remit_version (version INTEGER NOT NULL)")
        connection.execute("INSERT INTO remit_version VALUES (1)")
        row = Row._make(row_of(record(1, tokens=7, settled_at=2000.0, state=State.COMPLETED, caller_info=CallerInfo("token:one"))))
        connection.execute(f"INSERT INTO delegations ({COLUMNS}) VALUES ({', '.join(['%s'] * len(row))})", row)
    with ThreadPoolExecutor(4) as pool:
        for store in pool.map(lambda _: PostgresStore(server, schema=schema), range(4)):
            assert store.spent("token:one") == Spending(1, 7, 0.0, 1001.0)
            store.close()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://127.0.0.1:1/shop", "Check that the server runs"),
        (
            "postgresql://user:secret@127.0.0.1:1/shop",
            'contains a password. Write url = "postgresql://user@127.0.0.1:1/shop", and set PGPASSWORD',
        ),
        ("postgresql://127.0.0.1:1/shop?password=secret&sslmode=prefer", 'Write url = "postgresql://127.0.0.1:1/shop?sslmode=prefer", and'),
        ("mysql://127.0.0.1/shop", "store.url"),
    ],
)
def test_invalid_address_is_refused_with_advice(url: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text(f'[store]\nurl = "{url}"\n')
    done = cli.run("delegate", "worker.list_files", cwd=tmp_path)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr
    if "password" in said:
        refused = cli.run("store", "copy", "--to", url, cwd=tmp_path)
        assert (refused.code, "secret" in refused.stderr) == (2, False)
