"""Acceptance commands run code that an agent wrote. In the sandbox it reaches only the workspace, and real test suites still pass."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remit import Context, Remit, Return, agent
from remit.system.sandbox import probe as probes
from support import cli
from support.escape_stage import processes_marked
from support.pace import wait_until
from support.repository import all_committed

pytestmark = pytest.mark.skipif(not probes.probe().has_bubblewrap, reason="bubblewrap does not work here")
PACKAGES = next(Path(path) for path in sys.path if (Path(path) / "_pytest").is_dir())


CONFTEST = """\
import json, os, pathlib, socket

def attempt(name, deed):
    try:
        got = deed()
    except Exception as error:
        return
    loot.append(name)

def send(family, address):
    with socket.socket(family) as one:
        one.settimeout(2)
        one.connect(address)

loot = []
home, other = pathlib.Path({home!r}), pathlib.Path({other!r})
attempt("read a private key", lambda: (home / ".ssh" / "id_ed25519").read_text())
attempt("read a variable", lambda: os.environ["ANTHROPIC_API_KEY"])
attempt("write the home", lambda: (home / ".bashrc").open("a").write("evil") and (home / "other" / "a.txt").stat())
attempt("write another project", lambda: (other / "remit.toml").write_text("evil"))
attempt("write a hook", lambda: pathlib.Path(".git/hooks/post-checkout").write_text("evil"))
attempt("replace .git", lambda: os.rename(".git", ".git2"))
attempt("write an agent", lambda: pathlib.Path(".remit/agents/evil.py").write_text("evil"))
attempt("read the database", lambda: pathlib.Path(".remit/remit.db").read_bytes())
attempt("write a virtual environment", lambda: pathlib.Path(".venv/bin/python").write_text("evil"))
attempt("connect to a server here", lambda: send(socket.AF_INET, ("127.0.0.1", {port})))
attempt("connect to a socket here", lambda: send(socket.AF_UNIX, {unix!r}))
attempt("signal a process here", lambda: os.kill({pid}, 0))
pathlib.Path("loot.json").write_text(json.dumps(loot))
"""
ON_HOST = {
    "read a private key", "write the home", "write another project", "write a hook", "replace .git", "write an agent",
    "read the database", "write a virtual environment", "connect to a server here", "connect to a socket here", "signal a process here",
}  # fmt: skip


class Victim:
    """A home directory with a project in it and files that an attacker wants."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project, self.other = folder, folder / "project", folder / "other"
        for name in (".ssh", "project/.venv/bin", "project/.remit/agents", "other"):
            (folder / name).mkdir(parents=True, mode=0o700)
        (folder / ".ssh" / "id_ed25519").write_text("PRIVATE")
        (folder / "other" / "a.txt").write_text("theirs")
        (self.project / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
        subprocess.run(["git", "init", "-q", str(self.project)], check=True)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(str(folder / "s"))
        self.unix.listen()

    def conftest(self) -> str:
        return CONFTEST.format(
            home=str(self.home), other=str(self.other), port=self.server.getsockname()[1], unix=str(self.home / "s"), pid=os.getpid()
        )

    def looted(self) -> set[str]:
        return set(json.loads((self.project / "loot.json").read_text()))

    def close(self) -> None:
        self.server.close()
        self.unix.close()


@pytest.fixture
def victim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Victim]:
    one = Victim(tmp_path / "home")
    monkeypatch.setenv("HOME", str(one.home))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    yield one
    one.close()


def writer(files: dict[str, str], workspace: str = "shared") -> Any:
    """Agent that writes the given files."""

    @agent("writer", timeout=60, workspace=workspace)  # type: ignore[arg-type]
    async def write(ctx: Context) -> str:
        for name, text in files.items():
            (ctx.workspace / name).write_text(text)
        return "Wrote the tests. They pass."

    return write


async def accept(root: Path, files: dict[str, str], command: str, *, workspace: str = "shared", **settings: Any) -> Return:
    async with Remit.open(root, agents=[writer(files, workspace)], settings=settings) as remit:
        return await remit.delegate("writer", accept=[command], timeout=60)


PLAIN = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1"
PYTEST = f"{PLAIN} {sys.executable} -m pytest -q -p no:cacheprovider"


async def test_hostile_conftest_reaches_nothing_outside_the_workspace(victim: Victim) -> None:
    files = {"conftest.py": victim.conftest(), "test_a.py": "def test_a(): pass\n"}
    done = await accept(victim.project, files, PYTEST)
    assert (done.status, done.evidence) == ("completed", "verified"), done.errors
    assert victim.looted() == set()
    assert not (victim.home / ".bashrc").exists()
    assert (victim.project / ".git" / "HEAD").exists()


async def test_hostile_conftest_on_the_host_gets_no_api_key(victim: Victim) -> None:
    """The attacks work without a sandbox: `accept_in = "host"` offers no isolation."""
    done = await accept(victim.project, {"conftest.py": victim.conftest(), "test_a.py": "def test_a(): pass\n"}, PYTEST, accept_in="host")
    assert done.status == "completed", done.errors
    assert victim.looted() == ON_HOST


async def test_files_that_start_programs_on_the_host_cannot_be_changed_or_created(victim: Victim) -> None:
    shutil.rmtree(victim.project / ".git")
    (victim.project / ".claude").mkdir()
    for name in (".claude/settings.json", "pyproject.toml", "remit.toml"):
        (victim.project / name).write_text("")
    attack = """
        mv .claude .claude2; for one in .claude/settings.json pyproject.toml remit.toml; do echo evil >> $one; rm -f $one; done
        mkdir -p .git/hooks; git init -q .; git config core.fsmonitor evil; ls -l /proc/self/fd | wc -l > descriptors.txt; true
    """
    assert (await accept(victim.project, {}, attack)).status == "completed"
    assert sorted(os.listdir(victim.project)) == [".claude", ".remit", ".venv", "descriptors.txt", "pyproject.toml", "remit.toml"]
    assert {(victim.project / name).read_text() for name in (".claude/settings.json", "pyproject.toml", "remit.toml")} == {""}
    assert int((victim.project / "descriptors.txt").read_text()) == 5  # a title, three streams, and the listing itself
    (victim.project / ".git").mkdir()  # left by a killed run
    done = await accept(victim.project, {}, "echo evil > .envrc")
    assert not (victim.project / ".git").exists()
    assert "created .envrc, which can start programs" in done.errors[0].message


@pytest.mark.parametrize("has_bubblewrap", [True, False])
async def test_approvals_inside_the_workspace_cannot_be_read_or_written(
    has_bubblewrap: bool, victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home directory that is itself a project contains remit's state."""
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    if not has_bubblewrap:
        monkeypatch.setattr(probes, "_known", replace(probes.probe(), bubblewrap=None))
    (victim.home / ".local" / "share").mkdir(parents=True)
    attacks = (
        "echo x >> .local/state/remit/trust.json",
        "mv .local/state .local/old; mkdir -p .local/state/remit; touch .local/state/remit/x",
        "mv .local .old; mkdir -p .local/state/remit; touch .local/state/remit/x",
        "cat .local/state/remit/* > seen.txt; true",
    )
    (victim.home / "seen.txt").touch()
    done = await accept(victim.home, {}, "; ".join(attacks))
    assert done.status == "completed", done.errors
    assert (victim.home / "seen.txt").read_text() == ""
    state = victim.home / ".local" / "state" / "remit"
    assert (state / "databases").is_dir()
    assert not (state / "x").exists()
    assert not (state / "trust.json").exists()


# ---- who supplied the command

LOOK = "cat ~/.ssh/id_ed25519 > seen.txt 2>&1"


async def test_acceptance_command_from_an_agent_never_runs_on_the_host(victim: Victim) -> None:
    @agent("child", timeout=30)
    async def child() -> str:
        return "Done. Nothing else."

    @agent("parent", timeout=60)
    async def parent(ctx: Context) -> str:
        return (await ctx.delegate("child", accept=[LOOK])).status

    async with Remit.open(victim.project, agents=[child, parent], settings={"accept_in": "host"}) as remit:
        own = await remit.delegate("child", accept=[LOOK])
        assert own.status == "completed"
        assert (victim.project / "seen.txt").read_text() == "PRIVATE"
        assert (await remit.delegate("parent")).data == "partial"
        assert "No such file" in (victim.project / "seen.txt").read_text()


async def test_acceptance_command_over_mcp_never_runs_on_the_host(victim: Victim) -> None:
    from support.server import LOCAL, Service

    async with Remit.open(victim.project, agents=[writer({})], settings={"accept_in": "host"}) as remit:
        handle = await Service(remit).begin(LOCAL, {"target": "writer", "accept": [LOOK]})
        assert (await handle.result()).status == "partial"
    assert "No such file" in (victim.project / "seen.txt").read_text()


# ---- features that keep working

SUITE = {
    "test_suite.py": """\
import os, pathlib, socket, subprocess, sys, tempfile, threading
import pytest

def test_loopback():
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: server.accept()[0].sendall(b"hello"), daemon=True).start()
        with socket.create_connection(server.getsockname(), timeout=10) as client:
            assert client.recv(5) == b"hello"
    assert socket.getaddrinfo("localhost", 80)

def test_temporary_files(tmp_path):
    (tmp_path / "a").write_text("a")
    with tempfile.NamedTemporaryFile(dir=pathlib.Path.home()) as file:
        file.write(b"x")

def test_git(tmp_path):
    run = lambda *words, cwd=".": subprocess.run(["git", *words], cwd=cwd, check=True, capture_output=True, text=True).stdout
    assert "conftest" not in run("status", "--short")
    run("diff", "--stat")
    run("init", "-q", cwd=tmp_path)
    (tmp_path / "a").write_text("a")
    run("add", "a", cwd=tmp_path)
    run("commit", "-q", "-m", "first", cwd=tmp_path)
    assert run("log", "--format=%s", cwd=tmp_path) == "first\\n"

def test_processes_and_shared_memory():
    import multiprocessing
    assert multiprocessing.Lock().acquire(timeout=1)
    assert subprocess.check_output([sys.executable, "-c", "print(1)"]) == b"1\\n"

def test_workspace_is_written():
    pathlib.Path("written.txt").write_text(sys.prefix)
"""
}


def make_environment(folder: Path, prefix: Path) -> None:
    """Create a virtual environment with pytest for an interpreter installed at `prefix` under another name."""
    (prefix / "bin").mkdir(parents=True)
    shutil.copy(os.path.realpath(sys.executable), prefix / "bin" / "python3.11")
    (prefix / "lib").symlink_to(Path(sys.base_prefix) / "lib")
    alias = prefix.with_name("alias")
    alias.symlink_to(prefix)
    packages = folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for name in ("_pytest", "pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        shutil.copytree(PACKAGES / name, packages / name, copy_function=_link)
    _link(str(PACKAGES / "py.py"), str(packages / "py.py"))
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(alias / "bin" / "python3.11")
    (folder / "bin" / "pytest").write_text(f"#!{folder / 'bin' / 'python'}\nimport sys, pytest\nsys.exit(pytest.main())\n")
    (folder / "bin" / "pytest").chmod(0o755)
    (folder / "pyvenv.cfg").write_text(f"home = {alias / 'bin'}\nversion = 3.11\n")


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)


def repository(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    all_committed(folder)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.mark.parametrize("is_activated", [True, False])
async def test_suite_passes_with_an_external_virtualenv_and_a_uv_interpreter(
    is_activated: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it is only on PATH, as an editor or a Makefile sets it."""
    project, environment = home / "project", home / ".virtualenvs" / "project"
    repository(project, {"README": "x"})
    make_environment(environment, home / ".local" / "share" / "uv" / "python" / "cpython-3.11-linux-x86_64-gnu")
    if is_activated:
        monkeypatch.setenv("VIRTUAL_ENV", str(environment))
    monkeypatch.setenv("PATH", f"{environment / 'bin'}:/usr/bin:/bin")
    done = await accept(project, SUITE, "pytest -q")
    assert done.evidence == "verified", done.errors
    assert (project / "written.txt").read_text() == str(environment)


async def test_suite_passes_in_a_worktree(home: Path) -> None:
    project = home / "project"
    repository(project, {"README": "x", ".gitignore": "written.txt\n"})
    done = await accept(project, SUITE, PYTEST, workspace="worktree")
    assert done.evidence == "verified", done.errors
    assert not (project / "written.txt").exists()


# ---- settings and errors


async def test_settings_expose_listed_paths_and_variables(victim: Victim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "here")
    command = f"cat {victim.other}/a.txt > seen.txt && echo $DATABASE_URL >> seen.txt && ! touch {victim.other}/b"
    done = await accept(victim.project, {}, command, accept_read=["../other"], accept_env=["DATABASE_URL"])
    assert done.status == "completed", done.errors
    assert (victim.project / "seen.txt").read_text() == "theirshere\n"


def test_failed_command_reports_the_sandbox_limits_now_and_in_history(victim: Victim) -> None:
    (victim.project / ".remit" / "agents" / "w.py").write_text(
        "from remit import agent\n\n@agent('w')\ndef w() -> str:\n    return 'Done. It passes.'\n"
    )
    failed = cli.run("delegate", "w", "--accept", "cat ~/.ssh/id_ed25519", cwd=victim.project)
    assert failed.code != 0
    words = "sandbox without network, home directory and"
    settings = "see accept_read, accept_env and accept_in"
    for part in (words, settings):
        assert part in " ".join((failed.stdout + failed.stderr).split())
    session = cli.run("history", "--json", cwd=victim.project).json()["delegations"][0]["session_id"]
    shown = " ".join(cli.run("show", session, cwd=victim.project).stdout.split())
    assert words in shown
    assert settings in shown


async def test_memory_and_processes_are_limited(victim: Victim) -> None:
    hog = f"{sys.executable} -c 'import time; x = [bytearray(40 << 20) for _ in range(4)]; time.sleep(20)' & wait"
    done = await accept(victim.project, {}, f"({hog}) & ({hog}) & wait", accept_memory_mb=250)
    assert "more than 250 MB of memory (accept_memory_mb)" in done.errors[0].message
    done = await accept(victim.project, {}, "for i in $(seq 60); do sleep 20 & done; wait", accept_processes=40)
    assert done.status == "partial"
    assert "accept_processes" in done.errors[0].message or "fork" in done.errors[0].message


async def test_delegation_is_refused_before_work_when_no_sandbox_is_available(victim: Victim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "_known", probes.Offer())
    done = await accept(victim.project, {"made.txt": "x"}, "true")
    assert done.status != "completed"
    assert done.errors[0].code == "TOOL_UNAVAILABLE"
    assert 'accept_in = "host"' in done.errors[0].recommendation
    assert not (victim.project / "made.txt").exists()
    assert (await accept(victim.project, {"made.txt": "x"}, "true", accept_in="host")).status == "completed"


def test_killing_the_runtime_kills_its_acceptance_commands(victim: Victim) -> None:
    nonce = f"70.{os.getpid()}{threading.get_ident() % 10**6}"
    script = textwrap.dedent(f"""
        import asyncio
        from remit import Remit, agent
        @agent("w")
        async def w() -> str:
            return "Done. It passes."
        async def main():
            async with Remit.open(".", agents=[w]) as remit:
                await remit.delegate("w", accept=["setsid env -i sleep {nonce} & echo > started; sleep {nonce}"], timeout=60)
        asyncio.run(main())
    """)
    os.mkfifo(victim.project / "started")
    with subprocess.Popen([sys.executable, "-c", script], cwd=victim.project) as process:
        (victim.project / "started").read_text()
        process.kill()
    assert process.returncode == -signal.SIGKILL
    wait_until(lambda: not processes_marked(nonce))
