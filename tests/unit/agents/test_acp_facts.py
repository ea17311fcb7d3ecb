"""What a coding agent names when it asks for a tool is what the policy is asked about: all of it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from remit.agents.acp.updates import AskedTool, _facts

CTX: Any = SimpleNamespace(scratch=Path("/project/.remit/scratch/sess_1"))


@pytest.mark.parametrize(
    ("kind", "title", "call", "expected"),
    [
        (
            "read",
            "Read",
            {"rawInput": {"url": "https://a.example/", "file_path": ".env"}},
            [{"url": "https://a.example/"}, {"path": ".env"}],
        ),
        ("fetch", "Fetch http://127.0.0.1/x", {}, [{"url": "http://127.0.0.1/x"}]),
        ("edit", "Edit", {"rawInput": {"edits": [{"file_path": ".env"}, {"path": "b"}]}}, [{"path": ".env"}, {"path": "b"}]),
        ("edit", "Edit", {"rawInput": {"changes": {".env": {"add": "x"}}}}, [{"path": ".env"}]),
        ("read", "Read", {"rawInput": {"paths": ["a", ".env"]}}, [{"path": "a"}, {"path": ".env"}]),
        ("read", "see https://a.example/", {"locations": [{"path": "a"}]}, [{"path": "a"}]),
        ("other", "thing", {}, [{}]),
        ("edit", "Edit", {"rawInput": {"path": "/project/.remit/scratch/sess_1/x"}}, []),
    ],
)
def test_everything_it_names_is_asked_about(kind: str, title: str, call: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    assert list(_facts(CTX, AskedTool(kind=kind, title=title), call)) == expected
