"""A context behaves the same on the event loop, on a thread, and in a process."""

from pathlib import Path
from typing import Any

import context_agents as agents
import pytest

from remit import Remit

CALL: dict[str, Any] = {"word": "w", "task": {"title": "A title", "colour": "red"}, "budget": {"tokens": 10}}


@pytest.mark.parametrize("name", ["inline", "thread", "process", "process-blocking"])
async def test_every_operation_works_in_every_context(tmp_path: Path, name: str) -> None:
    own = [agents.inline, agents.thread, agents.process, agents.process_blocking]
    async with Remit.open(tmp_path, agents=[agents.echo, *own]) as remit:
        result = await remit.delegate(name, **CALL)
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
