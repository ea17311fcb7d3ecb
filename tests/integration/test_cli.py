"""`remit` on the command line: delegation, inspection, usage errors, missing and damaged projects."""

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_project import make_project, remit, remit_json

from support.cli import run_process

SETTINGS = """
[agents.words]
command = ["wc", "-w"]
answers = "value"

[agents.faulty]
command = ["cat"]
tmeout = 20
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One project with some delegations; tests that share it only read or add."""
    folder = make_project(tmp_path_factory.mktemp("project"))
    (folder / "remit.toml").write_text(SETTINGS)
    assert remit(folder, "delegate", "echo", "text=first").returncode == 0
    assert remit(folder, "delegate", "slow", "--timeout", "0.5").returncode == 3
    return folder


# ---- delegating


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (("echo", "text=hello", "times=2"), 0, "hello hello"),
        (("broken",), 1, "it [bold]broke[/bold]"),
        (("blocked",), 4, "Get one."),
        (("nobody",), 5, "no agent named 'nobody'"),
        (("echo", "text=x", "tims=2"), 5, "tims: there is no such parameter (did you mean times?)"),
        (("echo", "text=x", "times=often"), 5, "times must be a valid integer"),
        (("echo", "text=a\udcff"), 5, "with text in UTF-8"),
    ],
)
def test_delegate_prints_the_return_and_exits_by_outcome(project: Path, arguments: tuple[str, ...], code: int, expected: str) -> None:
    done = remit(project, "delegate", *arguments)
    assert (done.returncode, done.stdout.count(expected), "Traceback" in done.stderr) == (code, 1, False)


def test_delegate_json_prints_only_the_return(project: Path) -> None:
    result = remit_json(project, "delegate", "echo", "text=2024", "--accept", "true")
    assert (result["status"], result["data"], result["evidence"]) == ("completed", "2024", "verified")
    refused = remit_json(project, "delegate", "echo", "text=x", "--timeout", "99999", code=5)
    assert refused["errors"][0]["code"] == "INVALID_PARAMETERS"
    assert "7200" in refused["errors"][0]["recommendation"]


def test_idempotency_key_and_budget_are_honoured(project: Path) -> None:
    first, second = (remit_json(project, "delegate", "echo", "text=x", "--key", "once") for _ in range(2))
    assert first["metadata"]["session_id"] == second["metadata"]["session_id"]
    result = remit_json(project, "delegate", "slow", "--budget", "delegations=1")
    assert any("budget" in warning.lower() for warning in result["warnings"])


def test_invalid_option_exits_2_and_records_nothing(tmp_path: Path) -> None:
    make_project(tmp_path)
    for option in (("--timeout", "-1"), ("--idle", "soon"), ("--budget", "foo=3"), ("--priority", "urgent"), ("--priority", "²")):
        error = remit_json(tmp_path, "delegate", "echo", "text=x", *option, code=2)["error"]
        assert error["code"] == "INVALID_PARAMETERS"
        assert option[0] in error["message"] or option[1].partition("=")[0] in error["message"]
        assert error["advice"]
    assert sorted(os.listdir(tmp_path / ".remit")) == ["agents"]


def test_printed_resume_command_works(project: Path) -> None:
    done = remit(project, "delegate", "again", "--timeout", "1")
    assert done.returncode == 3
    printed = done.stdout.split()
    session = printed[printed.index("--resume") + 1]
    assert f"resume={session}" in remit_json(project, "show", "last")["delegation"]["return"]["next_steps"]
    again = remit(project, "delegate", "again", "--resume", session)
    assert (again.returncode, "Done in run 2." in again.stdout) == (0, True)


@pytest.mark.parametrize(
    ("command", "code"), [(("agents", "faulty"), 2), (("delegate", "faulty", "task=x"), 5), (("delegate", "faulty", "x"), 5)]
)
def test_invalid_agent_declaration_is_reported(project: Path, command: tuple[str, ...], code: int) -> None:
    done = remit(project, *command)
    assert done.returncode == code
    assert "faulty is declared in remit.toml but was not loaded: tmeout: there is no such key (did you mean timeout?)." in done.stderr
    assert "no agent named" not in done.stderr + done.stdout


NOISY = """
import os, subprocess
from remit import agent
print("while loading")

@agent("noisy")
async def noisy() -> int:
    print("from Python")
    os.write(1, b"from below\\n")
    subprocess.run(["echo", "from a child"])
    return 5
"""


def test_json_is_the_only_output_whatever_agents_print(tmp_path: Path) -> None:
    make_project(tmp_path)
    (tmp_path / ".remit" / "agents" / "noisy.py").write_text(NOISY)
    done = run_process("delegate", "noisy", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["data"] == 5
    for noise in ("while loading", "from Python", "from below", "from a child"):
        assert noise in done.stderr


# ---- rendering


def test_history_lists_newest_first_and_filters(project: Path) -> None:
    def listed(*arguments: str) -> list[dict[str, object]]:
        found: list[dict[str, object]] = remit_json(project, "history", *arguments)["delegations"]
        return found

    slow = listed("--agent", "slow", "--status", "timeout", "--since", "1h", "--limit", "5")
    assert {record["agent"] for record in slow} == {"slow"}
    assert {record["root_id"] for record in listed("--tree", str(slow[0]["session_id"]))} == {slow[0]["session_id"]}
    assert listed("--until", "1h") == []
    assert {record["depth"] for record in listed()} == {1}
    assert {record["depth"] for record in listed("--all")} == {1, 2}
    assert len(listed("--limit", "2")) == 2
    partial = listed("--status", "partial")
    assert "timeout" in {record["status"] for record in partial}, "the status of the return: a timeout returns partial work"
    assert [record["created_at"] for record in partial] == sorted((record["created_at"] for record in partial), reverse=True)  # type: ignore[type-var]
    for wrong in (("--since", "yesterday"), ("--status", "sleepy")):
        done = remit(project, "history", *wrong)
        assert (done.returncode, wrong[1] in done.stderr) == (2, True)


def test_show_prints_tree_steps_artifacts_and_return(project: Path) -> None:
    slow = remit_json(project, "history", "--agent", "slow", "--status", "timeout", "--limit", "1")["delegations"][0]["session_id"]
    text = remit(project, "show", slow, "--steps").stdout
    places = [text.index(part) for part in (slow, "sleeper", "TIMEOUT", "begun", "RegisterDelegation")]
    assert places == sorted(places)
    assert "half.txt" in text
    assert "RegisterDelegation" not in remit(project, "show", slow).stdout
    document = remit_json(project, "show", slow)
    assert [record["agent"] for record in document["tree"]] == ["slow", "sleeper"]
    assert {event["kind"] for event in document["events"]} >= {"step", "progress", "artifact"}


def test_session_is_selected_by_prefix_suffix_or_last(project: Path) -> None:
    session = remit_json(project, "delegate", "echo", "text=x")["metadata"]["session_id"]
    for name in (session, session[-6:], session[:-1], "last"):
        assert remit_json(project, "show", name)["delegation"]["session_id"] == session
    for name, output in (("sess_1", "could be sess_1"), ("nothing-like-it", "remit history")):
        done = remit(project, "show", name)
        assert (done.returncode, output in done.stderr) == (2, True)


def test_agents_lists_parameters_and_load_problems(tmp_path: Path) -> None:
    for expected in ("@agent(", "[agents.claude]", 'kind = "claude"', "remit init"):
        assert expected in remit(tmp_path, "agents").stdout, "an empty project lists every way to add an agent"
    make_project(tmp_path)
    (tmp_path / ".remit" / "agents" / "bad.py").write_text("raise RuntimeError('oops')")
    (tmp_path / ".remit" / "agents" / "half.md").write_text("---\nname: half\nremit:\n  tmeout: 3\n---\nYou are half.\n")
    listed = remit_json(tmp_path, "agents")
    assert {"echo", "slow", "again"} <= {agent["name"] for agent in listed["agents"]}
    assert any("bad.py (line 1): RuntimeError: oops" in problem for problem in listed["problems"])
    one = remit(tmp_path, "agents", "echo").stdout
    assert re.search(r"source +\.remit/agents/mine\.py:echo\n", one)
    assert "Say it again." in one
    for name, output in (("ecko", "Did you mean echo?"), ("half", "half is declared in .remit/agents/half.md but was not loaded: ")):
        done = remit(tmp_path, "agents", name)
        assert (done.returncode, output in done.stderr) == (2, True)
    assert sorted(os.listdir(tmp_path / ".remit")) == ["agents"]


# ---- empty and damaged projects


def test_read_only_commands_create_no_files(tmp_path: Path) -> None:
    for command in ("status", "history", "ledger", "config", "agents", "recover"):
        done = remit(tmp_path, command)
        assert (command, done.returncode, done.stderr, bool(done.stdout)) == (command, 0, "", True)
    assert "remit demo" in remit(tmp_path, "history").stdout
    for wrong in (("show", "last"), ("delegate", "echo", "text"), ("config", "--root", "nowhere"), ("validate", "missing.json")):
        assert remit(tmp_path, *wrong).returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_project_root_is_found_in_parent_folders_or_given(project: Path, tmp_path: Path) -> None:
    inside = project / "a" / "b"
    inside.mkdir(parents=True, exist_ok=True)
    assert remit_json(inside, "config")["root"] == str(project)
    assert remit_json(tmp_path, "config", "--root", str(project))["root"] == str(project)


def test_unusable_folder_is_reported_by_every_command(tmp_path: Path) -> None:
    """Even root cannot create a folder in /sys."""
    done = remit(Path("/sys"), "demo")
    assert (done.returncode, "cannot be used" in done.stderr, "writable" in done.stderr) == (7, True, True)
    (tmp_path / ".remit").write_text("")
    commands = ("status", "history", "ledger", "agents", "recover", "demo")
    for command in (("delegate", "echo"), ("show", "last"), *((name,) for name in commands)):
        done = remit(tmp_path, *command)
        assert (command, done.returncode, "is a file" in done.stderr, "mv " in done.stderr) == (command, 7, True, True)


def obey_permissions() -> None:
    """Preexec function: drop the capabilities that let root ignore file permissions."""
    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


@pytest.mark.parametrize("left", [(), ("-wal",), ("-wal", "-shm")], ids=["closed", "with a log", "with a log and its index"])
def test_project_that_cannot_be_written_can_be_inspected(tmp_path: Path, left: tuple[str, ...]) -> None:
    make_project(tmp_path)
    assert remit(tmp_path, "delegate", "echo", "text=x").returncode == 0
    if left:
        leave_log(tmp_path, left)
    everything = [tmp_path, *(path for path in tmp_path.rglob("*") if not path.is_symlink())]
    for path in everything:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        commands = (("history",), ("show", "last"), ("status",), ("delegate", "echo", "text=x"))
        *reads, refused = (run_process(*command, cwd=tmp_path, preexec_fn=obey_permissions) for command in commands)
        assert [(done.code, done.stderr) for done in reads] == [(0, "")] * 3
        assert ("later" in reads[0].stdout) is bool(left)
        assert (refused.code, "Traceback" in refused.stderr) == (7, False)
        assert all(path.exists() for path in everything)
    finally:
        for path in filter(Path.is_dir, everything):
            path.chmod(0o755)


DIES = """
import asyncio, os, sys
from remit import Remit

async def main():
    async with Remit.open(sys.argv[1], trust=True) as remit:
        await remit.delegate("echo", text="later")
        os._exit(0)

asyncio.run(main())
"""


def leave_log(project: Path, kept: tuple[str, ...]) -> None:
    """The database as a killed process leaves it: the newest row is only in the write-ahead log."""
    subprocess.run([sys.executable, "-c", DIES, str(project)], check=True, timeout=60)
    for tail in {"-wal", "-shm"} - set(kept):
        (project / ".remit" / f"remit.db{tail}").unlink()


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (("agents", "slow"), ["timeout 1 m 00 s", "maximum 2 h 00 m"]),
        (("limits",), ["slow 0 1 1 m 00 s 20 more completed runs are needed"]),
        (("config", "--all"), ["signals.logs text default", "slots_total 256 default"]),
    ],
)
def test_listings_print_durations_and_values_for_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], lines: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # no cell is truncated
    make_project(tmp_path)
    remit(tmp_path, "delegate", "slow", "--timeout", "0.5")
    printed = [" ".join(line.split()) for line in remit(tmp_path, *arguments).stdout.splitlines()]
    assert [line for line in lines if not any(one.startswith(line) for one in printed)] == []


# ---- validate


RETURN = {
    "status": "completed",
    "summary": "Looked at it. Found nothing wrong.",
    "artifacts": [],
    "metadata": {
        "session_id": "sess_1700000000_abc123",
        "agent_type": "a",
        "delegation_depth": 1,
        "delegation_path": ["orchestrator", "a"],
    },
    "errors": [],
}


def test_validate_prints_each_fault_on_a_line(tmp_path: Path) -> None:
    (tmp_path / "return.json").write_text(json.dumps(RETURN))
    assert remit(tmp_path, "validate", "return.json", "--session", "sess_1700000000_abc123").returncode == 0
    assert remit_json(tmp_path, "validate", "-", stdin=f"Here:\n```json\n{json.dumps(RETURN)}\n```\n")["valid"] is True
    done = remit(tmp_path, "validate", "-", "--session", "sess_1700000000_zzzzzz", stdin=json.dumps({**RETURN, "summary": ""}))
    assert done.returncode == 1
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["summary", "metadata.session_id"]
    assert remit_json(tmp_path, "validate", "-", stdin="prose", code=1)["valid"] is False


# ---- the program itself


def test_help_lists_exit_codes_and_wrong_option_is_a_usage_error(tmp_path: Path) -> None:
    done = remit(tmp_path, "--help")
    assert done.returncode == 0
    for expected in ("demo", "delegate", "validate", "Exit codes", "130"):
        assert expected in done.stdout
    assert "--nope" in remit_json(tmp_path, "history", "--nope", code=2)["error"]["message"]
    assert remit_json(tmp_path, "validate", code=2)["error"]["code"] == "INVALID_PARAMETERS"
