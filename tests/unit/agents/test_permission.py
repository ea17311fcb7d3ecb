"""Permissions come from the allow-list only, with the narrowest option offered."""

from hypothesis import given
from hypothesis import strategies as st

from remit.agents.acp.updates import KINDS, OWN_TOOLS, decide
from remit.agents.transcript import Call

kinds = st.sampled_from(sorted(KINDS)) | st.text(max_size=8)
tools = st.builds(Call, kind=kinds, title=st.text(max_size=20) | kinds)
answers = st.sampled_from(["allow_once", "allow_always", "reject_once", "reject_always", "", "allow_for_ever"])
options = st.lists(st.builds(dict, optionId=st.text(max_size=5), kind=answers), max_size=6)
patterns = st.lists(kinds | st.text(alphabet="*?[]!a:e", max_size=8), max_size=5)


@given(tools, options)
def test_empty_allow_list_allows_nothing(tool: Call, offered: list[dict[str, str]]) -> None:
    decision = decide((), tool, offered)
    assert not decision.allowed
    assert decision.option_id in {None, *(one["optionId"] for one in offered if one["kind"].startswith("reject"))}


@given(patterns, tools, options)
def test_answer_is_an_offered_option_that_matches_the_decision(allow: list[str], tool: Call, offered: list[dict[str, str]]) -> None:
    decision = decide(allow, tool, offered)
    if decision.option_id is None:
        assert not decision.allowed
    else:
        word = "allow" if decision.allowed else "reject"
        assert any(one["optionId"] == decision.option_id and one["kind"] in (f"{word}_once", f"{word}_always") for one in offered)


@given(tools, options)
def test_permission_is_granted_once_if_offered(tool: Call, offered: list[dict[str, str]]) -> None:
    decision = decide(("*",), tool, offered)
    once = [one["optionId"] for one in offered if one["kind"] == "allow_once"]
    if once:
        assert decision.option_id == once[0]
    assert decision.allowed == any(one["kind"] in ("allow_once", "allow_always") for one in offered)


@given(st.sampled_from(sorted(KINDS)), st.sampled_from(sorted(KINDS)))
def test_title_does_not_match_as_a_kind(kind: str, title: str) -> None:
    """A command titled "read" is still a command."""
    yes = [{"optionId": "yes", "kind": "allow_once"}]
    assert decide((title,), Call(kind=kind, title=title), yes).allowed == (kind == title)


@given(st.sampled_from(sorted(KINDS)), kinds)
def test_pattern_may_require_kind_and_title(kind: str, other: str) -> None:
    yes = [{"optionId": "yes", "kind": "allow_once"}]
    assert decide((f"{kind}:pytest *",), Call(kind=kind, title="pytest -q"), yes).allowed
    assert not decide((f"{kind}:pytest *",), Call(kind=kind, title="rm -r ."), yes).allowed
    assert decide((f"{kind}:pytest *",), Call(kind=other, title="pytest -q"), yes).allowed == (kind == other)


ACTING = st.sampled_from(["execute", "edit", "delete", "move", "shell", ""])


@given(ACTING, st.text(max_size=20))
def test_pattern_for_names_allows_no_command_and_no_edit(kind: str, words: str) -> None:
    """Their title is a command or a path, chosen by the model."""
    yes = [{"optionId": "yes", "kind": "allow_once"}]
    for pattern in (*OWN_TOOLS, "remit_*", "mcp__docs__*"):
        title = pattern.partition(":")[2] if pattern.startswith("other:") else pattern
        assert not decide((pattern,), Call(kind=kind, title=title.replace("*", words)), yes).allowed


@given(st.sampled_from([";", "&&", "|", "$(", "`", ">", "\n", "&", "<("]), st.text(max_size=20))
def test_pattern_for_one_command_allows_no_second_one(joint: str, words: str) -> None:
    yes = [{"optionId": "yes", "kind": "allow_once"}]
    assert not decide(("execute:pytest *",), Call(kind="execute", title=f"pytest -q {joint} {words}x"), yes).allowed
    assert decide(("execute:pytest *",), Call(kind="execute", title="`pytest -q`"), yes).allowed
    assert decide(("execute:*",), Call(kind="execute", title=f"pytest -q {joint} {words}"), yes).allowed
