"""`remit` as a person and a script use it: each command as a real process in a folder of its own (issue 2, item 8)."""

import ctypes
import json
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest
from cli_project import make_project, remit, remit_json

from support.cli import run_process


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One project in which something was delegated; the tests that share it only read or add."""
    folder = make_project(tmp_path_factory.mktemp("project"))
    assert remit(folder, "delegate", "echo", "text=first").returncode == 0
    assert remit(folder, "delegate", "slow", "--timeout", "0.5").returncode == 3
    return folder


# ---- delegate


def test_a_delegation_prints_its_return_and_exits_by_its_outcome(project: Path) -> None:
    done = remit(project, "delegate", "echo", "text=hello", "times=2")
    assert done.returncode == 0
    assert "hello hello" in done.stdout
    assert "completed" in done.stdout


def test_a_delegation_as_json_prints_the_return_alone(project: Path) -> None:
    result = remit_json(project, "delegate", "echo", "text=2024", "--accept", "true")
    assert (result["status"], result["data"], result["evidence"]) == ("completed", "2024", "verified")


@pytest.mark.parametrize(("agent", "code"), [("broken", 1), ("blocked", 4), ("nobody", 5)])
def test_each_outcome_has_its_exit_code(project: Path, agent: str, code: int) -> None:
    done = remit(project, "delegate", agent)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_markup_in_an_agents_words_is_shown_as_it_is(project: Path) -> None:
    assert "it [bold]broke[/bold]" in remit(project, "delegate", "broken").stdout


def test_a_timeout_above_the_maximum_is_refused_with_advice(project: Path) -> None:
    """S2.2: nothing runs."""
    result = remit_json(project, "delegate", "echo", "text=x", "--timeout", "99999", code=5)
    assert result["errors"][0]["code"] == "INVALID_PARAMETERS"
    assert "7200" in result["errors"][0]["recommendation"]


def test_a_parameter_that_is_no_pair_is_a_usage_error_before_anything_is_made(tmp_path: Path) -> None:
    done = remit(tmp_path, "delegate", "echo", "text")
    assert done.returncode == 2
    assert "name=value" in done.stderr
    assert not (tmp_path / ".remit").exists()


def test_a_deadline_gives_what_was_done_and_the_code_for_partial(project: Path) -> None:
    """S2.6"""
    result = remit_json(project, "delegate", "slow", "--timeout", "0.5", code=3)
    assert (result["status"], result["stop_reason"]) == ("partial", "deadline")
    assert [artifact["path"] for artifact in result["artifacts"]] == ["half.txt"]


def test_the_same_key_is_not_run_twice(project: Path) -> None:
    first = remit_json(project, "delegate", "echo", "text=x", "--key", "once")
    second = remit_json(project, "delegate", "echo", "text=x", "--key", "once")
    assert first["metadata"]["session_id"] == second["metadata"]["session_id"]


def test_a_budget_is_kept(project: Path) -> None:
    result = remit_json(project, "delegate", "slow", "--budget", "delegations=1", code=0)
    assert any("budget" in warning.lower() for warning in result["warnings"])


WRONG = [
    ("--timeout", "-1"),
    ("--timeout", "soon"),
    ("--idle", "0"),
    ("--budget", "tokens"),
    ("--budget", "foo=3"),
    ("--priority", "urgent"),
]


@pytest.mark.parametrize("option", WRONG, ids="=".join)
def test_an_option_that_is_wrongly_written_exits_2_and_nothing_is_recorded(tmp_path: Path, option: tuple[str, str]) -> None:
    make_project(tmp_path)
    error = remit_json(tmp_path, "delegate", "echo", "text=x", *option, code=2)["error"]
    assert error["code"] == "INVALID_PARAMETERS"
    assert option[0] in error["message"] or option[1].partition("=")[0] in error["message"]
    assert error["advice"]
    assert sorted(os.listdir(tmp_path / ".remit")) == ["agents"]


def test_a_wrong_parameter_is_named_in_plain_words_and_once(project: Path) -> None:
    done = remit(project, "delegate", "echo", "text=x", "times=often")
    assert done.returncode == 5
    assert done.stdout.count("times must be a whole number, not 'often'") == 1
    assert done.stderr == ""


def test_where_there_are_no_agents_the_refusal_says_how_to_begin(tmp_path: Path) -> None:
    assert "worker.read_file" in remit(tmp_path, "delegate", "echo").stdout
    (tmp_path / "remit.toml").write_text("builtin_agents = []\n")
    assert "Put one into .remit/agents/" in remit(tmp_path, "delegate", "echo").stdout


def test_two_agents_of_one_name_are_mentioned_when_that_name_is_called(tmp_path: Path) -> None:
    make_project(tmp_path)
    (tmp_path / ".remit" / "agents" / "other.py").write_text("from remit import agent\n@agent\nasync def echo() -> str: return 'other'\n")
    done = remit(tmp_path, "delegate", "echo", "text=x")
    assert done.returncode == 0
    assert "Two agents are named 'echo'" in done.stderr
    assert "Two agents" not in remit(tmp_path, "delegate", "broken").stderr


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

@agent("noisy.thread")
def thread() -> int:
    print("from a thread")
    return 6
"""


def test_json_stands_alone_on_stdout_whatever_agents_print(tmp_path: Path) -> None:
    make_project(tmp_path)
    (tmp_path / ".remit" / "agents" / "noisy.py").write_text(NOISY)
    done = run_process("delegate", "noisy", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["data"] == 5
    for noise in ("while loading", "from Python", "from below", "from a child"):
        assert noise in done.stderr
    assert run_process("delegate", "noisy.thread", "--json", cwd=tmp_path).json()["data"] == 6
    assert len(run_process("agents", "--json", cwd=tmp_path).json()["agents"]) > 2


# ---- reading


def test_history_lists_the_newest_first_and_filters(project: Path) -> None:
    listed = remit_json(project, "history", "--agent", "slow", "--status", "timeout", "--since", "1h", "--limit", "5")["delegations"]
    assert listed
    assert {record["agent"] for record in listed} == {"slow"}
    assert remit_json(project, "history", "--until", "1h")["delegations"] == []
    assert "echo" in remit(project, "history").stdout


def test_history_of_a_tree_holds_callers_and_children(project: Path) -> None:
    root = remit_json(project, "history", "--agent", "slow", "--limit", "1")["delegations"][0]["session_id"]
    tree = remit_json(project, "history", "--tree", root)["delegations"]
    assert {record["root_id"] for record in tree} == {root}
    assert {record["agent"] for record in tree} >= {"slow"}


def test_history_lists_roots_and_with_all_their_children(project: Path) -> None:
    assert {record["depth"] for record in remit_json(project, "history")["delegations"]} == {1}
    assert {record["depth"] for record in remit_json(project, "history", "--all")["delegations"]} == {1, 2}
    assert len(remit_json(project, "history", "--limit", "2")["delegations"]) == 2


def test_partial_means_the_returns_status_and_so_finds_deadlines(project: Path) -> None:
    found = remit_json(project, "history", "--status", "partial")["delegations"]
    assert {record["return"]["status"] for record in found} == {"partial"}
    assert "timeout" in {record["status"] for record in found}
    times = [record["created_at"] for record in found]
    assert times == sorted(times, reverse=True)
    assert {record["status"] for record in remit_json(project, "history", "--status", "timeout")["delegations"]} == {"timeout"}


@pytest.mark.parametrize("arguments", [("--since", "yesterday"), ("--status", "sleepy")])
def test_history_says_what_it_does_not_understand(project: Path, arguments: tuple[str, str]) -> None:
    done = remit(project, "history", *arguments)
    assert done.returncode == 2
    assert arguments[1] in done.stderr


def test_show_tells_the_tree_steps_artifacts_and_return(project: Path) -> None:
    slow = remit_json(project, "history", "--agent", "slow", "--status", "timeout", "--limit", "1")["delegations"][0]["session_id"]
    text = remit(project, "show", slow, "--steps").stdout
    places = [text.index(part) for part in (slow, "sleeper", "TIMEOUT", "begun", "RegisterDelegation")]
    assert places == sorted(places)
    assert "half.txt" in text
    assert "checked" in text
    assert "RegisterDelegation" not in remit(project, "show", slow).stdout
    document = remit_json(project, "show", slow)
    assert document["delegation"]["session_id"] == slow
    assert [record["agent"] for record in document["tree"]] == ["slow", "sleeper"]
    assert {event["kind"] for event in document["events"]} >= {"step", "progress", "artifact"}


def test_a_session_is_named_by_its_end_its_beginning_or_last(project: Path) -> None:
    session = remit_json(project, "delegate", "echo", "text=x")["metadata"]["session_id"]
    for name in (session, session[-6:], session[:-1], "last"):
        assert remit_json(project, "show", name)["delegation"]["session_id"] == session


def test_a_name_that_fits_several_or_none_is_refused(project: Path) -> None:
    several, none = remit(project, "show", "sess_1"), remit(project, "show", "nothing-like-it")
    assert several.returncode == none.returncode == 2
    assert "could be sess_1" in several.stderr
    assert "remit history" in none.stderr


def test_the_ledger_lists_errors_and_filters_by_type(project: Path) -> None:
    assert {error["type"] for error in remit_json(project, "ledger", "--type", "timeout")["errors"]} == {"timeout"}
    assert "TIMEOUT" in remit(project, "ledger").stdout


def test_agents_are_listed_with_what_they_accept_and_what_could_not_be_loaded(tmp_path: Path) -> None:
    make_project(tmp_path)
    (tmp_path / ".remit" / "agents" / "bad.py").write_text("raise RuntimeError('oops')")
    listed = remit_json(tmp_path, "agents")
    assert {"echo", "slow", "again"} <= {agent["name"] for agent in listed["agents"]}
    assert "bad.py (line 1): RuntimeError: oops" in listed["problems"][0]
    one = remit(tmp_path, "agents", "echo")
    assert "required" in one.stdout
    assert "Say it again." in one.stdout
    unknown = remit(tmp_path, "agents", "ecko")
    assert unknown.returncode == 2
    assert "Did you mean echo?" in unknown.stderr
    assert sorted(os.listdir(tmp_path / ".remit")) == ["agents"]


def test_config_tells_where_each_value_came_from(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text("max_depth = 5\n")
    settings = {one["key"]: one for one in remit_json(tmp_path, "config")["settings"]}
    assert (settings["max_depth"]["value"], settings["max_depth"]["source"]) == (5, "remit.toml:max_depth")
    assert settings["cycles"]["source"] == "default"
    short, whole = remit(tmp_path, "config").stdout, remit(tmp_path, "config", "--all").stdout
    assert "max_depth" in short
    assert "cycles" not in short
    assert "--all" in short
    assert whole.index("max_depth") < whole.index("cycles"), "what differs from its default comes first"


def test_a_setting_that_is_wrong_is_named(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text("max_dept = 5\n")
    done = remit(tmp_path, "config")
    assert done.returncode == 2
    assert "did you mean max_depth?" in done.stderr
    assert "durability" not in done.stderr


# ---- where there is nothing, and where something is wrong


def test_reading_commands_leave_no_trace_in_a_fresh_folder(tmp_path: Path) -> None:
    for command in ("status", "history", "ledger", "config", "agents", "recover"):
        done = remit(tmp_path, command)
        assert (command, done.returncode, done.stderr) == (command, 0, "")
        assert done.stdout
    assert "remit demo" in remit(tmp_path, "history").stdout
    assert remit(tmp_path, "show", "last").returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_the_root_is_found_upwards_or_named(project: Path, tmp_path: Path) -> None:
    inside = project / "a" / "b"
    inside.mkdir(parents=True, exist_ok=True)
    assert remit_json(inside, "config")["root"] == str(project)
    assert remit_json(tmp_path, "config", "--root", str(project))["root"] == str(project)
    assert remit(tmp_path, "config", "--root", "nowhere").returncode == 2


def test_a_damaged_database_is_named_left_alone_and_exits_unavailable(tmp_path: Path) -> None:
    make_project(tmp_path)
    (tmp_path / ".remit" / "remit.db").write_bytes(b"this is no database, whatever its name says" * 50)
    before = (tmp_path / ".remit" / "remit.db").read_bytes()
    for command in (("history",), ("delegate", "echo", "text=x"), ("show", "last")):
        done = remit(tmp_path, *command)
        assert done.returncode == 7
        assert "damaged" in done.stderr
        assert "Traceback" not in done.stderr
    assert remit_json(tmp_path, "status", code=7)["error"]["code"] == "STORE_UNAVAILABLE"
    assert (tmp_path / ".remit" / "remit.db").read_bytes() == before


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Root may write into any folder of an ordinary file system; nobody may make one in /sys."""
    folder = Path("/sys") if os.geteuid() == 0 else tmp_path
    tmp_path.chmod(0o555)
    done = remit(folder, "demo")
    assert done.returncode == 7
    assert "cannot be used" in done.stderr
    assert "writable" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_where_the_folder_should_be_is_named_by_every_command(tmp_path: Path) -> None:
    (tmp_path / ".remit").write_text("")
    commands = ("status", "history", "ledger", "agents", "recover", "demo")
    for command in (("delegate", "echo"), ("show", "last"), *((name,) for name in commands)):
        done = remit(tmp_path, *command)
        assert (command, done.returncode) == (command, 7)
        assert "is a file" in done.stderr
        assert "mv " in done.stderr


def obey_permissions() -> None:
    """Run in a child before it becomes `remit`: root has to keep to the permissions of files, as everybody else has."""
    PR_CAPBSET_DROP, CAP_DAC_OVERRIDE = 24, 1
    ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, 0, 0, 0)


@pytest.mark.parametrize("left", [(), ("-wal",), ("-wal", "-shm")], ids=["closed", "with a log", "while it is open"])
def test_a_project_that_cannot_be_written_can_be_looked_at(tmp_path: Path, left: tuple[str, ...]) -> None:
    make_project(tmp_path)
    assert remit(tmp_path, "delegate", "echo", "text=x").returncode == 0
    database = tmp_path / ".remit" / "remit.db"
    if left:
        _leave_log(database, left)
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_symlink()]
    folders = [tmp_path, *(path for path in tmp_path.rglob("*") if path.is_dir())]
    for path in (*files, *folders):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        for command in (("history",), ("show", "last"), ("status",), ("ledger",), ("agents",)):
            done = run_process(*command, cwd=tmp_path, preexec_fn=obey_permissions)
            assert (command, done.returncode, done.stderr) == (command, 0, "")
        assert ("later" in run_process("history", cwd=tmp_path, preexec_fn=obey_permissions).stdout) is bool(left)
        assert run_process("delegate", "echo", "text=x", cwd=tmp_path, preexec_fn=obey_permissions).returncode == 7
        assert [path for path in files if not path.exists()] == []
    finally:
        for path in folders:
            path.chmod(0o755)


def _leave_log(database: Path, kept: tuple[str, ...]) -> None:
    """As a process that was killed, or lives on another machine, leaves it: the newest is in the log alone."""
    with tempfile.TemporaryDirectory() as name:
        connection = sqlite3.connect(database)
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute("UPDATE delegations SET agent='later'")
        connection.commit()
        for tail in ("", *kept):
            shutil.copy(f"{database}{tail}", name)
        connection.close()
        for tail in ("", *kept):
            shutil.copy(f"{name}/remit.db{tail}", f"{database}{tail}")


# ---- validate (S3.9)

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


def test_a_valid_return_exits_0(tmp_path: Path) -> None:
    (tmp_path / "return.json").write_text(json.dumps(RETURN))
    assert remit(tmp_path, "validate", "return.json", "--session", "sess_1700000000_abc123").returncode == 0
    assert remit_json(tmp_path, "validate", "-", stdin=f"Here:\n```json\n{json.dumps(RETURN)}\n```\n")["valid"] is True


def test_an_invalid_return_exits_1_with_each_fault_on_a_line(tmp_path: Path) -> None:
    done = remit(tmp_path, "validate", "-", "--session", "sess_1700000000_zzzzzz", stdin=json.dumps({**RETURN, "summary": ""}))
    assert done.returncode == 1
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == ["summary", "metadata.session_id"]
    assert remit_json(tmp_path, "validate", "-", stdin="prose", code=1)["valid"] is False


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    assert remit(tmp_path, "validate", "missing.json").returncode == 2


# ---- the program itself


def test_without_arguments_help_is_printed_with_the_exit_codes(tmp_path: Path) -> None:
    done = remit(tmp_path)
    assert done.returncode == 0
    for word in ("demo", "delegate", "validate", "Exit codes", "130"):
        assert word in done.stdout


def test_an_unknown_option_is_a_usage_error(tmp_path: Path) -> None:
    assert remit(tmp_path, "history", "--nope").returncode == 2
    assert "--nope" in remit_json(tmp_path, "history", "--nope", code=2)["error"]["message"]
    assert remit_json(tmp_path, "validate", code=2)["error"]["code"] == "INVALID_PARAMETERS"
