"""Agents cannot read secret files under any name, and known keys in other files are not sent to a model."""

import os
from pathlib import Path
from typing import Any

import pytest

from remit import Context, Remit, agent
from remit.server.a2a.messages import task_of
from remit.testing import Call, Reply, Say, ScriptedModels, valid_return
from support.repository import begin, git
from support.server import Call as ServiceCall
from support.server import Principal, Service

SECRET = "hunter2 is the word"
KEY = "ghp_" + "a1B2" * 9


@agent("reader")
async def reader(ctx: Context, attempts: list[dict[str, Any]]) -> list[Any]:
    """Represents any agent that may read files."""
    return [
        (await ctx.delegate(f"worker.{operation}", parameters=one)).data
        for one in attempts
        for operation in (["search_files"] if "pattern" in one else ["read_file"])
    ]


async def read_all(root: Path, attempts: list[dict[str, Any]]) -> str:
    async with Remit.open(root, agents=[reader]) as remit:
        done = await remit.delegate("reader", parameters={"attempts": attempts})
    assert done.ok, done
    return str(done.data)


@pytest.mark.parametrize(
    "name", [".ENV", ".Env.Local", "Credentials.JSON", "server.Pem", ".SSH/config", "ID_RSA", "\uff0eenv", ".env\u200b"]
)
async def test_secret_file_is_refused_in_every_spelling(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(SECRET)
    assert SECRET not in await read_all(tmp_path, [{"path": name}, {"path": ".", "pattern": "hunter2"}])


async def test_git_commands_do_not_reveal_secret_files(tmp_path: Path) -> None:
    begin(tmp_path)
    (tmp_path / ".env").write_text(SECRET)
    git(tmp_path, "add", "--force", ".env")
    git(tmp_path, "commit", "-qm", "oops")
    (tmp_path / ".git/notes").write_text(SECRET)
    (tmp_path / "store").symlink_to(".git")
    object_id = git(tmp_path, "rev-parse", "HEAD:.env").strip()
    paths = [f"{folder}/{path}" for folder in (".git", "store") for path in (f"objects/{object_id[:2]}/{object_id[2:]}", "config", "notes")]
    async with Remit.open(tmp_path) as remit:
        for path in paths:
            for operation, more in (("read_file", {}), ("search_files", {"pattern": "hunter2", "include_ignored": True})):
                done = await remit.delegate(f"worker.{operation}", parameters={"path": path, **more})
                assert done.errors[0].code == "POLICY_DENIED", path
            done = await remit.delegate("coder.execute_code", parameters={"code": "pass", "files": [path]})
            assert done.errors[0].code == "POLICY_DENIED", path


async def test_hard_link_to_a_secret_file_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy/.env").write_text(SECRET)
    (tmp_path / ".gitignore").write_text(".env\n")
    os.link(tmp_path / "deploy/.env", tmp_path / "notes.txt")
    (tmp_path / "plain.txt").write_text("hunter2 is public")
    os.link(tmp_path / "plain.txt", tmp_path / "twin.txt")
    found = await read_all(
        tmp_path, [{"path": "notes.txt"}, {"path": ".", "pattern": "hunter2"}, {"path": "notes.txt", "pattern": "hunter2"}]
    )
    assert SECRET not in found
    assert "twin.txt" in found
    assert "hunter2 is public" in await read_all(tmp_path, [{"path": "twin.txt"}])


async def test_known_keys_are_not_sent_to_a_model(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text(f"The token is {KEY}, the rest is public: token = settings.token\n")
    calls = [
        Call("delegate", target="worker", operation="read_file", parameters={"path": "notes.md"}),
        Call("delegate", target="worker", operation="search_files", parameters={"pattern": "token"}),
    ]
    async with ScriptedModels([calls, Reply(lambda request: Say(valid_return(request)))]) as server:
        address = {"kind": "openai", "url": server.openai_url, "model": "scripted"}
        thinker = {"kind": "model", "description": "Thinks.", "tools": ["worker"], "timeout": 60}
        settings = {"model": "scripted", "models": {"scripted": address}, "agents": {"thinker": thinker}}
        async with Remit.open(tmp_path, settings=settings) as remit:
            assert (await remit.delegate("thinker", task="Read.")).ok
            assert KEY in (await remit.delegate("worker.read_file", path="notes.md")).data["content"]
    shown = str([message.text for message in server.requests[-1].messages])
    assert KEY not in shown
    assert shown.count("token = settings.token") == 2


async def test_artifact_that_names_a_secret_file_reveals_no_content(tmp_path: Path) -> None:
    """An agent can name any file in its return; tokens and models read artifacts through MCP and A2A."""
    (tmp_path / ".env").write_text(SECRET)
    (tmp_path / "notes.txt").symlink_to(".env")
    (tmp_path / "plain.txt").write_text("public")

    @agent("namer", isolation="inline")
    async def namer(ctx: Context, paths: list[str]) -> dict[str, Any]:
        (ctx.scratch / "report.md").write_text(SECRET)
        named = [{"type": "report", "path": path} for path in paths]
        return {"status": "completed", "summary": "Here they are.", "artifacts": named, "errors": []}

    eve = ServiceCall(principal=Principal(name="token:eve"), api="mcp")
    async with Remit.open(tmp_path, agents=[namer]) as remit:
        service = Service(remit)
        mine = (await remit.delegate("namer", paths=["plain.txt"])).session_id
        paths = [".env", "notes.txt", ".remit/remit.db", ".remit/audit.jsonl", f".remit/scratch/{mine}/report.md", "plain.txt"]
        asked = {"target": "namer", "parameters": {"paths": paths}}
        session = (await (await service.begin(eve, asked)).result()).session_id
        record = await service.record(eve, session)
        contents = [service.artifact_content(record, path, 1000) for path in paths]
        task = task_of(record, service.artifact_content)
    assert contents == [None] * 5 + [b"public"]
    assert SECRET not in str(task)
