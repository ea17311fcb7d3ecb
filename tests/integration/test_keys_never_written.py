"""A provider's key comes from the environment and stays there: of whatever a server says back, nothing that is kept holds it."""

from pathlib import Path
from typing import Any

import pytest

from remit import Remit
from remit.assistant.asking import ask
from remit.testing.models import Call, Fail, Say, ScriptedModels

KEY = "sk-" + "never-to-be-kept-" * 2


def _script(request: Any) -> Any:
    if "fail" in request.messages[-1].text:
        return Fail(401, f"the key {KEY} is wrong")
    if request.results:
        return Say(f"You sent me {KEY}, thank you.")
    return [Say(f"First of all, {KEY}. "), Call("delegate", target="worker", operation="search_files", parameters={"pattern": KEY})]


def _files_below(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_no_file_of_a_project_ever_holds_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither database, conversation, ledger, log nor scratch, nor what people are told."""
    monkeypatch.setenv("KEPT_NOWHERE", KEY)
    async with ScriptedModels(_script) as server:
        table = {"kind": "openai", "url": server.openai_url, "model": "scripted", "key_variable": "KEPT_NOWHERE"}
        settings: dict[str, Any] = {"model": "scripted", "models": {"scripted": table}}
        heard: list[str] = []
        async with Remit.open(tmp_path, settings=settings) as remit:
            first = await ask(remit, "Hello", hear=heard.append)
            second = await ask(remit, "Now fail", first.data["conversation"], hear=heard.append)
        assert KEY in str(server.requests[0].headers), "the server was sent it"
    assert first.ok, first
    assert len(first.data["delegations"]) == 1
    assert not second.ok
    assert KEY not in f"{first} {second} {''.join(heard)}"
    files = _files_below(tmp_path)
    assert any(name.endswith(".jsonl") for name in files)
    assert [name for name, content in files.items() if KEY.encode() in content] == []
