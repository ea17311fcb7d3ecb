"""Two processes on one project: status, follow, cancel and recovery from a second one."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from cli_project import make_project, remit, remit_json, started, wait_for_line

GONE = "its process is gone: remit recover"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


def test_status_shows_delegations_of_another_process(project: Path) -> None:
    first = started(project, "delegate", "slow")
    second = started(project, "delegate", "sleeper", "seconds=30")
    try:
        wait_for_line(first, "begun")
        wait_for_line(second, "asleep")
        document = remit_json(project, "status")
        names = {one["agent"]: one for one in document["delegations"]}
        assert {"slow", "sleeper"} <= set(names)
        assert names["slow"]["doing"].startswith(("25% begun", "data: half.txt"))
        assert 0 < names["slow"]["left"] <= 60
        assert names["slow"]["stuck"] is None
        assert "sleeper" in remit(project, "status").stdout
    finally:
        for process in (first, second):
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


def test_follow_exits_by_the_outcome_of_the_delegation(project: Path) -> None:
    worker = started(project, "delegate", "slow", "seconds=3")
    wait_for_line(worker, "begun")
    follower = started(project, "follow", "last")
    out, _ = follower.communicate(timeout=60)
    worker.communicate(timeout=60)
    assert follower.returncode == 0
    for text in ("begun", "asleep", "half.txt", "completed", "Slept well."):
        assert text in out
    document = remit_json(project, "follow", "last")
    assert (document["status"], document["return"]["status"], document["stuck"]) == ("completed", "completed", None)
    numbers = [event["number"] for event in document["events"] if event["session_id"] == document["session_id"]]
    assert numbers
    assert numbers == sorted(numbers)


def test_cancel_from_another_process_returns_partial_work(project: Path) -> None:
    worker = started(project, "delegate", "slow", "--json")
    while not (project / "half.txt").exists():
        time.sleep(0.02)
    nodes = remit_json(project, "cancel", "last", "--reason", "not needed")["nodes"]
    out, _ = worker.communicate(timeout=60)
    assert worker.returncode == 6
    result = json.loads(out)
    assert (result["status"], result["stop_reason"]) == ("partial", "cancelled")
    assert "not needed" in result["summary"]
    assert [artifact["path"] for artifact in result["artifacts"]] == ["half.txt"]
    assert {node["agent"] for node in nodes} == {"slow", "sleeper"}
    again = remit_json(project, "cancel", "last")["nodes"]
    assert again[0]["state"] == "already cancelled"


def test_ctrl_c_prints_partial_work_and_exits_130(project: Path) -> None:
    worker = started(project, "delegate", "slow")
    wait_for_line(worker, "asleep")
    worker.send_signal(signal.SIGINT)
    out, err = worker.communicate(timeout=60)
    assert worker.returncode == 130
    assert "cancelled" in out
    assert "half.txt" in out
    assert "Traceback" not in err
    assert remit_json(project, "show", "last")["delegation"]["status"] == "cancelled"


def killed(project: Path, *arguments: str, at: str) -> None:
    """A delegation whose process was killed with kill -9."""
    process = started(project, "delegate", *arguments)
    wait_for_line(process, at)
    process.kill()
    process.communicate(timeout=60)


def test_new_delegation_reports_interrupted_ones_without_recovering_them(project: Path) -> None:
    killed(project, "again", at="run 1")
    done = remit(project, "delegate", "echo", "text=x")
    assert done.returncode == 0
    assert done.stderr.count("remit recover") == 1
    assert "1 delegation of a process that ended is waiting" in done.stderr
    assert [one["agent"] for one in remit_json(project, "status")["delegations"]] == ["again"]
    waiting = remit_json(project, "status")["delegations"][0]["session_id"]
    assert "remit recover" in remit_json(project, "delegate", "again", "--resume", waiting, code=2)["error"]["advice"]


def test_ctrl_c_during_recovery_stops_resumed_delegations(project: Path) -> None:
    killed(project, "long", at="begun")
    process = started(project, "recover")
    wait_for_line(process, "begun")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "resumed work is stopped" in err
    assert " -0." not in err, "events of the run before are not in the future"
    assert "Traceback" not in err
    assert remit_json(project, "show", "last")["delegation"]["status"] == "cancelled"


def test_delegations_of_a_killed_process_are_recovered(project: Path) -> None:
    """Resumable delegations are resumed and awaited; the others are settled as partial."""
    runs = [started(project, "delegate", "again"), started(project, "delegate", "slow")]
    wait_for_line(runs[0], "run 1")
    wait_for_line(runs[1], "asleep")
    for process in runs:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
    assert {one["stuck"] for one in remit_json(project, "status")["delegations"]} == {GONE}
    assert {one["stuck"] for one in remit_json(project, "history")["delegations"]} == {GONE}
    assert f"! 3 delegations: {GONE}" in remit(project, "status", env={"COLUMNS": "60"}).stdout, "however narrow"
    assert GONE in remit(project, "show", "last").stdout
    followed = remit(project, "follow", "last")
    assert followed.returncode == 3
    assert GONE in followed.stderr
    assert remit_json(project, "follow", "last", code=3)["stuck"] == GONE
    found = remit_json(project, "recover")
    assert len(found["dead_processes"]) == 2
    assert [(one["agent"], one["status"]) for one in found["resumed"]] == [("again", "completed")]
    assert found["resumed"][0]["return"]["data"] == "Done in run 2."
    assert {one["agent"]: one["status"] for one in found["settled"]} == {"slow": "partial", "sleeper": "partial"}
    assert remit_json(project, "status")["active"] == 0
    assert "Nothing to recover" in remit(project, "recover").stdout
