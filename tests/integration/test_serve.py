"""`remit serve`: one process, all APIs, each switchable; it stops gracefully and hands over."""

import signal
import time
from pathlib import Path

import pytest
from cli_project import remit
from serve_harness import Server, project, serving

from support.pace import wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    with serving(project(tmp_path_factory.mktemp("served"))) as running:
        yield running


def test_every_api_is_served_by_one_process(server: Server) -> None:
    import grpc

    from remit import tasks_pb2 as pb
    from remit import tasks_pb2_grpc as rpc

    with grpc.insecure_channel(server.at.grpc) as channel:
        rpc.TaskServiceStub(channel).Ping(pb.PingRequest(), timeout=10)
    with server.http() as http:
        assert http.get("/healthz").json() == {"status": "ok"}
        assert http.get("/readyz").status_code == 200
        assert "echo" in {agent["name"] for agent in http.get("/v1/agents").json()["agents"]}
        assert http.get("/.well-known/agent-card.json").json()["name"]
        assert "door_requests_total" in http.get("/metrics").text
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        for path in ("/mcp", "/mcp/"):
            response = http.post(path, json=listing, headers={"accept": "application/json, text/event-stream"})
            assert '"delegate_many"' in response.text


def test_work_started_over_one_api_is_visible_over_the_others_and_in_the_cli(tmp_path: Path) -> None:
    import grpc

    from remit import tasks_pb2 as pb
    from remit import tasks_pb2_grpc as rpc

    with serving(project(tmp_path)) as server:
        done = server.begin("echo", 5.0, text="Hello there.")
        with grpc.insecure_channel(server.at.grpc) as channel:
            task = rpc.TaskServiceStub(channel).GetTaskStatus(pb.GetTaskStatusRequest(task_id=done["taskId"]), timeout=10).task
        assert task.data.string_value == done["data"] == "Hello there."
        assert "Hello there." in remit(server.root, "show", done["taskId"]).stdout


def test_second_server_on_the_same_addresses_is_refused(server: Server) -> None:
    second = remit(server.root, "serve", "--http", "127.0.0.1:0")
    assert second.returncode != 0
    assert "Traceback" not in second.stderr
    assert server.begin("echo", 5.0, text="Still here.")["success"]


def test_only_named_apis_are_served(tmp_path: Path) -> None:
    with serving(project(tmp_path), "--api", "http") as server:
        assert server.at.grpc is None
        with server.http() as http:
            assert http.get("/v1/agents").status_code == 200
            assert [http.get(path).status_code for path in ("/mcp", "/metrics", "/.well-known/agent-card.json")] == [404] * 3


def test_stopping_server_refuses_new_work_and_finishes_running_work(tmp_path: Path) -> None:
    with serving(project(tmp_path)) as server, server.http() as http:
        begun = server.begin("slow", seconds=1.5)
        server.send_signal()
        wait_until(lambda: http.get("/readyz").status_code == 503)
        refused = http.post("/v1/tasks", json={"target": "echo", "parameters": {"text": "Too late."}})
        assert refused.status_code == 503
        assert refused.json()["code"] == "STOPPING"
        assert http.get(f"/v1/tasks/{begun['taskId']}", params={"wait": 10}).json()["data"] == "Slept well."
        code, output = server.wait()
    assert code == 0
    assert "1 still running" in output
    assert "Stopped." in output


def test_resumable_work_is_handed_over_and_the_rest_is_cancelled(tmp_path: Path) -> None:
    with serving(project(tmp_path), "--stop-after", "0.2") as server:
        again, slow = server.begin("again"), server.begin("slow")
        time.sleep(0.3)
        server.send_signal()
        code, output = server.wait()
        assert code == 0
        assert "1 handed over and 1 stopped" in output
    with serving(tmp_path) as server, server.http() as http:
        resumed = http.get(f"/v1/tasks/{again['taskId']}", params={"wait": 15}).json()
        assert resumed["data"] == "Done in run 2."
        assert http.get(f"/v1/tasks/{slow['taskId']}").json()["taskState"] == "CANCELLED"


def test_second_signal_stops_the_server_at_once(tmp_path: Path) -> None:
    with serving(project(tmp_path), "--stop-after", "60") as server:
        server.begin("slow")
        server.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert server.process.poll() is None
        server.send_signal(signal.SIGINT)
        assert server.wait(10)[0] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--http", "0.0.0.0:0"), "proxy"),
        (("--grpc", "0.0.0.0:0"), "proxy"),
        (("--api", "front"), "front"),
        (("--http", "nowhere"), "HOST:PORT"),
    ],
)
def test_invalid_serve_options_are_refused_before_anything_starts(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    result = remit(tmp_path, "serve", *options)
    assert result.returncode != 0
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / ".remit" / "remit.db").exists()
