"""A built-in operation times out at the limit of the delegation or at its own parameter, whichever is shorter."""

import socket
from pathlib import Path

from web_server import Request, web_server

from remit import DelegateTool, Remit


def silent(connection: socket.socket, _requests: Request) -> None:
    connection.recv(1)  # until the client disconnects


def drips(connection: socket.socket, heard: Request) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nonce upon")
    silent(connection, heard)


CASES = {
    "web_fetch, no answer": ("worker", "web_fetch", {"url": "/silent"}, 600),
    "web_fetch, endless body": ("worker", "web_fetch", {"url": "/drips"}, 600),
    "execute_code, the limit of the delegation": ("coder", "execute_code", {"code": "while True: pass"}, 1500),
    "execute_code, its own parameter": ("coder", "execute_code", {"code": "while True: pass", "timeout": 300}, 60_000),
}


async def test_timeout_is_in_the_result_the_record_and_the_metrics(tmp_path: Path) -> None:
    with web_server({"/silent": silent, "/drips": drips}) as server:
        async with Remit.open(tmp_path, settings={"policy_mode": "disabled"}) as remit:
            tool = DelegateTool(remit)
            for target, operation, parameters, timeout in CASES.values():
                if "url" in parameters:
                    parameters = {"url": f"{server.url}{parameters['url']}"}
                done = await tool.call({"target": target, "operation": operation, "parameters": parameters, "timeout": timeout})
                result = done.to_dict()
                assert (result["taskState"], result["error"]["code"]) == ("TIMEOUT", "TASK_TIMEOUT"), result
                record = await remit.describe(done.task_id)
                assert record.result is not None
                assert (str(record.state), record.result.status, record.result.stop_reason) == ("timeout", "partial", "deadline")
                assert record.result.errors[0].code == "TIMEOUT"
            assert (await remit.metrics()).to_dict()["delegation.timeout_rate"] == 1.0
