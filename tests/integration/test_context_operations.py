"""A context behaves the same on the event loop, on a thread, in a process, and in an attached process."""

from pathlib import Path
from typing import Any

import context_agents as agents
import pytest

from remit import Context, Remit, agent

CALL: dict[str, Any] = {"word": "w", "task": {"title": "A title", "colour": "red"}, "budget": {"tokens": 10}}


@agent("lends", timeout=60)
async def lends(ctx: Context, name: str) -> str:
    """Opens a Remit inside an agent: it attaches, and its agents are served over the connection."""
    async with Remit.open("/", agents=[agents.inline, agents.thread]) as attached:
        return (await attached.delegate(name, **CALL)).session_id


@pytest.mark.parametrize("name", ["inline", "thread", "process", "process-blocking", "lent inline", "lent thread"])
async def test_every_operation_works_in_every_context(tmp_path: Path, name: str) -> None:
    own = [] if name.startswith("lent") else [agents.inline, agents.thread, agents.process, agents.process_blocking]
    async with Remit.open(tmp_path, agents=[agents.echo, lends, *own]) as remit:
        if own:
            result = await remit.delegate(name, **CALL)
        else:
            lent = await remit.delegate("lends", name=name.removeprefix("lent "))
            result = (await remit.describe(lent.data)).result
        assert result.ok, result
        session_id = result.session_id
        assert result.data == {
            "session_id": session_id,
            "parameters": {"word": "w"},
            "left": True,
            "hand_in": False,
            "saved": ["w"],
            "task": ["A title", {"colour": "red"}],
            "tokens": 7,
            "environment": session_id,
            "path": list(result.metadata.delegation_path),
            "data": ["a", "b", None, "c"],
            "kinds": ["complete"],
            "refused": ["Refused", "POLICY_DENIED"],
            "permitted": ["made.txt"],
        }
        assert "Look at this." in result.warnings
        assert [(one.type, Path(one.path).name) for one in result.artifacts] == [("data", "made.txt")]
        output = [(e.kind, e.body) for e in await remit.events(session_id) if e.kind in ("progress", "data", "spent")]
        assert output == [
            ("progress", {"message": "begun", "fraction": 0.5}),
            ("data", {"chunk": {"word": "w"}}),
            ("spent", {"tokens": 3, "cost": 0.0}),
        ]
        assert [child.agent for child in await remit.children(session_id)] == ["echo", "echo", "nobody", "echo"]
