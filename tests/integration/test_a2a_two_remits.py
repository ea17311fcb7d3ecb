"""Two remits, in two processes and folders, that call each other over A2A (issue 7 item 2)."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from a2a_stage import Stage, a2a_stage

from remit.access.visitor import Doing
from remit.core.states import State


@contextlib.asynccontextmanager
async def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> AsyncIterator[tuple[Stage, Path]]:
    """This end, with agents `far-…` that are the other end's; and the folder of that."""
    far_root = tmp_path / "far"
    far_root.mkdir()
    agents: dict[str, Any] = {
        f"far-{name}": {"a2a": "http://127.0.0.1:1", "remote": name, "token_variable": "FAR_TOKEN"} for name in ("place", "relay", "slow")
    }
    async with a2a_stage(tmp_path / "near", agents=agents, **settings) as near:
        token = near.token("far", frozenset({Doing.DELEGATE, Doing.RELAY}))
        environment = {**os.environ, "NEAR_URL": near.url, "NEAR_TOKEN": token}
        program = Path(__file__).with_name("a2a_far_end.py")
        far = await asyncio.create_subprocess_exec(
            sys.executable, program, far_root, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            assert far.stdout is not None
            told = json.loads(await asyncio.wait_for(far.stdout.readline(), 30))
            monkeypatch.setenv("FAR_TOKEN", told["trusted"])
            monkeypatch.setenv("FAR_STRANGER", told["stranger"])
            for name in agents:
                agent: Any = near.remit.directory.find(name)
                object.__setattr__(agent.definition, "address", told["url"])  # each is told of the other's port: one of them must wait
            yield near, far_root
        finally:
            assert far.stdin is not None
            far.stdin.close()
            await asyncio.wait_for(far.wait(), 20)


async def test_depth_path_and_deadline_count_on_over_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with both(tmp_path, monkeypatch, max_depth=6) as (near, _):
        returned = await near.remit.delegate("far-place", timeout=20)
        data = returned.unwrap()
        assert (data["depth"], data["path"]) == (2, ["orchestrator", "far-place", "place"])
        assert 10 < data["left"] <= 20

        # From here to there and back to where it came from: refused, in words that reach whoever asked first.
        circle = await near.remit.delegate("far-relay", timeout=30)
        assert circle.unwrap()["codes"] == ["CYCLE_DETECTED"]
        refused = await near.remit.history(agent="far-relay", status="refused")
        assert [record.path for record in refused] == [("orchestrator", "far-relay", "relay", "near", "far-relay")]

        # Stopped here, it is stopped there too, and soon.
        handle = await near.remit.start("far-slow")
        await until_said(near, handle.session_id, "Working.")
        await handle.cancel("not needed")
        assert (await near.remit.describe(handle.session_id)).state is State.CANCELLED
        await until(lambda: (tmp_path / "far" / "stopped").exists())

        # Nobody is believed who was not granted it.
        monkeypatch.setenv("FAR_TOKEN", os.environ["FAR_STRANGER"])
        data = (await near.remit.delegate("far-place")).unwrap()
        assert (data["depth"], data["path"]) == (1, ["token:stranger", "place"])


async def test_our_deadline_ends_it_over_there_and_what_it_had_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with both(tmp_path, monkeypatch) as (near, far_root):
        begun = time.monotonic()
        returned = await near.remit.delegate("far-slow", timeout=2)
        assert time.monotonic() - begun < 5
        assert (str(returned.status), str(returned.stop_reason), returned.errors[0].code) == ("partial", "deadline", "TIMEOUT")
        await until((far_root / "stopped").exists)
        # The same way round, with the usual three: too deep before it is a circle.
        assert (await near.remit.delegate("far-relay", timeout=30)).unwrap()["codes"] == ["MAX_DEPTH_EXCEEDED"]


async def until(condition: Any, seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - a file of another process's
            await asyncio.sleep(0.02)


async def until_said(stage: Stage, session_id: str, words: str) -> None:
    async with asyncio.timeout(10):
        async for event in stage.remit.follow(session_id):
            if event.body.get("message") == words:
                return
