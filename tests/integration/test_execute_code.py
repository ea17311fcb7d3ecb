"""`coder.execute_code`: output, files in and out, limits, and the network policy."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from remit import EventKind, Remit, Return
from support.sandboxes import node

NAME = "coder.execute_code"


@pytest.fixture
async def remit(tmp_path: Path) -> AsyncIterator[Remit]:
    (tmp_path / "names.txt").write_text("b\na\nb\n")
    (tmp_path / ".env").write_text("KEY=geheim")
    async with Remit.open(tmp_path) as opened:
        yield opened


async def executed(remit: Remit, code: str, **parameters: Any) -> tuple[Return, dict[str, Any]]:
    done = await remit.delegate(NAME, parameters={"code": code, **parameters})
    return done, dict(done.data or {})


async def test_python_output_and_files_are_returned(remit: Remit, tmp_path: Path) -> None:
    done, data = await executed(remit, "print('hello'); open('out.txt', 'w').write('x' * 10)")
    assert (done.status, data["exitCode"], data["stdout"], data["stderr"]) == ("completed", 0, "hello\n", "")
    assert [(file["name"], file["sizeBytes"]) for file in data["files"]] == [("out.txt", 10)]
    assert (tmp_path / data["files"][0]["path"]).read_text() == "x" * 10
    assert [artifact.type for artifact in done.artifacts] == ["data"]
    assert not done.warnings
    _, data = await executed(remit, "for name in ('a.txt', 'b.csv'): open(name, 'w').write('x')", outputs=["*.csv"])
    assert ([file["name"] for file in data["files"]], data["filesNotBroughtOut"]) == (["b.csv"], 1)


@pytest.mark.parametrize(
    ("code", "inputs", "stdout"),
    [
        ("import tool; print(tool.ANSWER)", {"files": {"tool.py": "ANSWER = 42", "sub/data.txt": "x"}}, "42\n"),
        ("import sys; print(sys.stdin.read().upper())", {"stdin": "grüß\n" * 30_000}, "GRÜSS\n" * 30_000 + "\n"),
        ("for name in ('a.txt', 'b.csv'): open(name, 'w').write('x')", {"outputs": []}, ""),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\xe2\\x82'); sys.stdout.flush()", {}, "\ufffd\ufffd"),
    ],
    ids=["files as text", "standard input", "no file is wanted", "bytes that are not text"],
)
async def test_input_reaches_the_program_unchanged(remit: Remit, code: str, inputs: dict[str, Any], stdout: str) -> None:
    done, data = await executed(remit, code, **inputs)
    assert (done.status, data["stdout"], data["files"]) == ("completed", stdout, [])


async def test_failing_program_is_a_failed_delegation_with_its_stderr(remit: Remit) -> None:
    done, data = await executed(remit, "def f():\n    1 / 0\nprint('before')\nf()")
    assert (done.status, data["exitCode"], data["stdout"]) == ("failed", 1, "before\n")
    assert "ZeroDivisionError" in done.errors[0].message
    lines = data["stderr"].splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].strip() == 'File "/workspace/main.py", line 4, in <module>'
    _, data["second"] = await executed(remit, "x = (\n")
    assert "SyntaxError" in data["second"]["stderr"]
    assert "launcher" not in str(data)


@pytest.mark.skipif(node() is None, reason="needs Node")
async def test_javascript_runs_as_script_and_as_module(remit: Remit) -> None:
    _, required = await executed(remit, "console.log(require('./data.json').answer)", language="js", files={"data.json": '{"answer": 42}'})
    _, imported = await executed(remit, "import fs from 'fs'\nconsole.log(await Promise.resolve(typeof fs.readFileSync))", language="node")
    assert (required["stdout"], imported["stdout"]) == ("42\n", "function\n")


async def test_timeout_is_in_milliseconds_and_output_is_kept(remit: Remit) -> None:
    done, data = await executed(remit, "print('begun')\nwhile True: pass", timeout=300)
    assert (done.status, done.errors[0].code, data["stdout"]) == ("partial", "TIMEOUT", "begun\n")
    assert (data["killedBy"], data["timedOut"], data["durationMs"] >= 250) == ("time", True, True)
    done = await remit.delegate(NAME, parameters={"code": "print('begun')\nwhile True: pass"}, timeout=1.5)
    assert (done.status, done.errors[0].code) == ("partial", "TIMEOUT")
    assert done.data["stdout"] == "begun\n"


async def test_exceeded_resource_limit_is_named(remit: Remit) -> None:
    done, data = await executed(remit, "x = bytearray(10 ** 10)", memory_mb=64)
    assert (done.errors[0].code, data["limitsHit"]) == ("LIMIT_EXCEEDED", ["memory"])
    assert "memory_mb" in done.errors[0].recommendation


async def test_network_is_denied_by_default_and_absent_in_the_sandbox(remit: Remit) -> None:
    done, _ = await executed(remit, "print(1)", network=True)
    assert (done.status, done.errors[0].code) == ("failed", "POLICY_DENIED")
    done, _ = await executed(remit, "import urllib.request as web; web.urlopen('http://127.0.0.1:1')")
    assert "no network" in done.errors[0].recommendation


async def test_network_is_available_when_the_policy_allows_it(tmp_path: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"reached")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    code = f"import socket; print(socket.create_connection(('127.0.0.1', {port}), 5).recv(99).decode())"
    async with server, Remit.open(tmp_path, settings={"policy_mode": "permissive"}) as remit:
        done, data = await executed(remit, code, network=True)
    assert (done.status, data["stdout"], data["sandbox"]["network"]) == ("completed", "reached\n", True)


async def test_output_is_streamed_while_the_program_runs(remit: Remit) -> None:
    code = "import sys, time\nprint('one')\ntime.sleep(0.2)\nprint('two', file=sys.stderr)"
    handle = await remit.start(NAME, parameters={"code": code})
    chunks = [event.body["chunk"] async for event in handle.stream() if event.kind is EventKind.DATA]
    assert chunks == [{"stream": "stdout", "text": "one\n"}, {"stream": "stderr", "text": "two\n"}]


@pytest.mark.parametrize(
    ("parameter", "value"), [("language", "ruby"), ("timeout", -1), ("memory_mb", 1), ("files", {"../x": "y"}), ("code", "a\0b")]
)
async def test_invalid_requests_are_refused_before_anything_runs(remit: Remit, parameter: str, value: Any) -> None:
    done = await remit.delegate(NAME, parameters={"code": "pass", parameter: value})
    assert done.status == "failed"
    assert done.errors[0].code == "INVALID_PARAMETERS"


async def test_workspace_files_are_available(remit: Remit, tmp_path: Path) -> None:
    done, data = await executed(
        remit, "sort -u names.txt | tee sorted.txt; echo changed >> names.txt", language="shell", files=["names.txt"]
    )
    assert (done.status, data["stdout"]) == ("completed", "a\nb\n")
    assert {file["name"] for file in data["files"]} == {"sorted.txt", "names.txt"}
    assert (tmp_path / "names.txt").read_text() == "b\na\nb\n"
