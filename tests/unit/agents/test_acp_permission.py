"""Permissions of agents on the Agent Client Protocol come from the allow-list and the policy, with the narrowest option offered."""

from typing import Any

import pytest
from acp.schema import PermissionOption, ToolCallUpdate
from hypothesis import given
from hypothesis import strategies as st

from remit.agents.acp.session import KINDS, OWN_TOOLS, allowing_pattern, facts_of, offered_option

kinds = st.sampled_from(sorted(KINDS))
words = st.text(max_size=20)


@given(kinds | st.text(max_size=8), words | kinds)
def test_empty_list_allows_nothing_and_a_star_everything(kind: str, title: str) -> None:
    assert allowing_pattern((), kind, title) is None
    assert allowing_pattern(("*",), kind, title) == "*"


@given(kinds, kinds)
def test_title_does_not_match_as_a_kind(kind: str, title: str) -> None:
    """A command titled "read" is still a command."""
    assert (allowing_pattern((title,), kind, title) is not None) == (kind == title)


@given(st.sampled_from(["execute", "edit", "delete", "move", "shell", ""]), words)
def test_pattern_for_names_allows_no_command_and_no_edit(kind: str, said: str) -> None:
    """Their title is a command or a path, chosen by the model."""
    for pattern in (*OWN_TOOLS, "remit_*", "mcp__docs__*"):
        assert allowing_pattern((pattern,), kind, pattern.removeprefix("other:").replace("*", said)) is None


@given(st.sampled_from([";", "&&", "|", "$(", "`", ">", "\n", "&", "<("]), words)
def test_pattern_for_one_command_allows_no_second_one(joint: str, said: str) -> None:
    assert allowing_pattern(("execute:pytest *",), "execute", f"pytest -q {joint} {said}x") is None
    assert allowing_pattern(("execute:pytest *",), "read", "pytest -q") is None
    assert allowing_pattern(("execute:pytest *",), "execute", "`pytest -q`")
    assert allowing_pattern(("execute:*",), "execute", f"pytest -q {joint} {said}")


def test_permission_is_granted_once_if_offered() -> None:
    options = [PermissionOption(option_id=kind, name=kind, kind=kind) for kind in ("allow_always", "reject_once", "allow_once")]
    assert offered_option(options, ("allow_once", "allow_always")) == "allow_once"
    assert offered_option(options[:1], ("allow_once", "allow_always")) == "allow_always"
    assert offered_option(options[1:2], ("allow_once", "allow_always")) is None


@pytest.mark.parametrize(
    ("kind", "title", "call", "expected"),
    [
        ("read", "Read", {"url": "https://a.example/", "file_path": ".env"}, [{"path": ".env"}, {"url": "https://a.example/"}]),
        ("fetch", "Fetch http://127.0.0.1/x", {}, [{"url": "http://127.0.0.1/x"}]),
        ("execute", "`rm x`", {}, [{"command": "rm x"}]),
        ("read", "see https://a.example/", {"path": "a"}, [{"path": "a"}]),
        ("edit", "Edit", {"edits": [{"file_path": ".env"}], "paths": [".git/x"]}, [{"path": ".git/x"}, {"path": ".env"}]),
        ("fetch", "Fetch `https://a.example/x`", {"url": 7}, [{"url": "https://a.example/x"}]),
        ("other", "thing", {}, [{}]),
    ],
)
def test_policy_decides_on_everything_named(kind: str, title: str, call: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    assert list(facts_of(kind, title, ToolCallUpdate(tool_call_id="1", raw_input=call))) == expected
