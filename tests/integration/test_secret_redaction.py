"""Redaction: secrets that equal words of our own records, encoded secrets, and keys of providers."""

from pathlib import Path
from typing import Any

import pytest

from remit import Context, Remit, Return, agent, ask
from remit.runtime.error_ledger import ErrorLedger
from remit.testing import Call, Fail, Say, ScriptedModels

WORDS = ["completed", "failed", "finished", "claimed", "orchestrator", "asking", "refused", "stop_reason", "cancelled", "1789"]


@agent
async def asking(ctx: Context, password: str, breaks: bool) -> Any:
    ctx.progress(f"with {password}")
    if breaks:
        raise ValueError(f"not {password}")
    return {"with": password}


@agent
async def above(ctx: Context, password: str, breaks: bool) -> str:
    return str((await ctx.delegate("asking", password=password, breaks=breaks)).status)


@pytest.mark.parametrize("breaks", [False, True])
async def test_password_that_is_a_word_of_the_records_keeps_history_readable(tmp_path: Path, breaks: bool) -> None:
    """Redacting such a word must not damage the records."""
    results: dict[str, Return] = {}
    async with Remit.open(tmp_path, agents=[asking, above]) as remit:
        for word in WORDS:
            results[word] = await remit.delegate("above", password=word, breaks=breaks)
        assert len(await remit.history()) == 2 * len(WORDS)
        for word, live in results.items():
            root, child = await remit.tree(live.session_id)
            assert (root.path, child.path) == (("orchestrator", "above"), ("orchestrator", "above", "asking")), word
            assert (root.result.status, root.result.stop_reason) == (live.status, live.stop_reason)
            assert str(child.result.status) == ("failed" if breaks else "completed")
    assert len(ErrorLedger(tmp_path / ".remit" / "errors.json").entries()) == (0 if not breaks else 2)  # "1789" is too short to be redacted


API_KEY = "sk-" + "never-to-be-kept-" * 2


def script(request: Any) -> Any:
    if "fail" in request.messages[-1].text:
        return Fail(401, f"the key {API_KEY} is wrong")
    if request.results:
        return Say(f"You sent me {API_KEY}, thank you.")
    return [
        Say(f"First of all, {API_KEY}. "),
        Call("delegate", target="worker", operation="search_files", parameters={"pattern": API_KEY}),
    ]


def files_below(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


async def test_no_file_of_a_project_contains_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Database, conversation, ledger, log, scratch files and output."""
    monkeypatch.setenv("KEPT_NOWHERE", API_KEY)
    async with ScriptedModels(script) as server:
        table = {"kind": "openai", "url": server.openai_url, "model": "scripted", "key_variable": "KEPT_NOWHERE"}
        settings: dict[str, Any] = {"model": "scripted", "models": {"scripted": table}}
        chunks: list[str] = []
        async with Remit.open(tmp_path, settings=settings) as remit:
            first = await ask(remit, "Hello", hear=chunks.append)
            second = await ask(remit, "Now fail", first.data["conversation"], hear=chunks.append)
        assert API_KEY in str(server.requests[0].headers), "the server received it"
    assert first.ok, first
    assert len(first.data["delegations"]) == 1
    assert not second.ok
    assert API_KEY not in f"{first} {second} {''.join(chunks)}"
    files = files_below(tmp_path)
    assert any(name.endswith(".jsonl") for name in files)
    assert [name for name, content in files.items() if API_KEY.encode() in content] == []
