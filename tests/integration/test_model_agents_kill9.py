"""A model agent whose process is killed during a turn resumes without repeating finished delegations."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from remit import Context, Remit, agent
from remit.testing import Call, ModelRequest, Reply, Say, ScriptedModels, valid_return

HERE = Path(__file__)


@agent("log")
async def log(ctx: Context, text: str, hangs: bool = False) -> str:
    with (ctx.root / "runs.txt").open("a") as file:
        file.write(f"{text}\n")
    if hangs and not (ctx.root / "calm").exists():
        await asyncio.sleep(60)
    return f"logged {text}"


def open_project(root: Path, url: str) -> Any:
    address = {"kind": "openai", "url": url, "model": "scripted"}
    thinker = {"kind": "model", "tools": ["log"], "timeout": 120, "resumable": True}
    settings = {"model": "scripted", "models": {"scripted": address}, "agents": {"thinker": thinker}}
    return Remit.open(root, agents=[log], settings=settings)


async def think(root: Path, url: str) -> None:
    async with open_project(root, url) as remit:
        await remit.delegate("thinker", parameters={"task": "Work hard."})


def script(request: ModelRequest) -> Any:
    if not request.results:
        return [Call("delegate", target="log", parameters={"text": text}) for text in ("a", "b")]
    if len(request.results) == 2:
        return [Call("delegate", target="log", parameters={"text": text, "hangs": text == "d"}) for text in ("c", "d")]
    return Reply(lambda request: Say(valid_return(request)))


async def test_killed_model_agent_repeats_only_the_interrupted_delegation(tmp_path: Path) -> None:
    runs = tmp_path / "runs.txt"
    async with ScriptedModels(script) as models:
        process = await asyncio.create_subprocess_exec(sys.executable, str(HERE), str(tmp_path), models.openai_url)
        try:
            async with asyncio.timeout(60):
                while not runs.exists() or not {"c", "d"} <= set(runs.read_text().split()):
                    assert process.returncode is None
                    await asyncio.sleep(0.02)
                await asyncio.sleep(0.1)  # c finishes and is recorded
        finally:
            process.kill()
            await process.wait()
        (tmp_path / "calm").touch()
        async with open_project(tmp_path, models.openai_url) as remit:
            (session_id,) = remit.recovered.resumed
            async with asyncio.timeout(60):
                while (result := (await remit.describe(session_id)).result) is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        assert result.ok, result
        assert len(models.requests) == 3
        assert [text in shown for text, shown in zip("abcd", models.requests[-1].results, strict=True)] == [True] * 4
    assert sorted(runs.read_text().split()) == ["a", "b", "c", "d", "d"]


if __name__ == "__main__":
    asyncio.run(think(Path(sys.argv[1]), sys.argv[2]))
