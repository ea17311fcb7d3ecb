"""Policy decisions: deny beats ask, ask beats allow, and errors deny."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import PolicyRequest
from remit.core.policy import Verdict
from remit.policy.engine import PolicyEvaluator
from remit.policy.rules import PolicyError, default_text, groups_of, read_rules
from remit.runtime.policy_facts import path_facts


def request(action: str = "worker.read_file", effects: tuple[str, ...] = ("read",), caller: str = "coder", **facts: Any) -> PolicyRequest:
    depth = facts.pop("depth", 2)
    return PolicyRequest(
        caller=caller, action=action, depth=depth, path=("orchestrator", caller), effects=effects, facts=facts, timeout_seconds=60
    )


def verdict(text: str, question: PolicyRequest) -> Verdict:
    return PolicyEvaluator(text).judge(question).verdict


PERMIT = "permit (principal, action, resource);"


def test_default_is_deny() -> None:
    assert verdict("", request()) is Verdict.DENY
    assert verdict('permit (principal == Agent::"other", action, resource);', request()) is Verdict.DENY


def test_deny_beats_ask_and_ask_beats_allow() -> None:
    ask = '@ask("really?") permit (principal, action, resource);'
    deny = "forbid (principal, action, resource);"
    assert verdict(PERMIT, request()) is Verdict.ALLOW
    assert verdict(PERMIT + ask, request()) is Verdict.ASK
    assert verdict(PERMIT + ask + deny, request()) is Verdict.DENY


@pytest.mark.parametrize("group", ["worker.read_file", "worker", "read", "delegate"])
def test_action_belongs_to_the_groups_of_its_name_target_and_effects(group: str) -> None:
    rule = f'permit (principal, action in Action::"{group}", resource);'
    assert verdict(rule, request()) is Verdict.ALLOW
    assert verdict(rule, request("other.thing", ("write",))) is (Verdict.ALLOW if group == "delegate" else Verdict.DENY)


def test_agent_named_like_an_effect_does_not_have_that_effect() -> None:
    rule = 'permit (principal, action in Action::"read", resource);'
    assert verdict(rule, request("read", ())) is Verdict.DENY
    assert groups_of("read", (), True) == ("delegate",)


def test_rules_may_use_caller_action_resource_depth_and_limits() -> None:
    rule = """permit (principal == Agent::"coder", action == Action::"worker.read_file", resource == Path::"src/x.py")
    when { context.depth <= 2 && context.ancestors.contains("orchestrator") &&
    context.timeout_seconds <= 60 && context.path like "src/*" };"""
    judge = PolicyEvaluator(rule)  # one for all: what it remembers of one request decides no other
    assert judge.judge(request(path="src/x.py")).verdict is Verdict.ALLOW
    assert judge.judge(request(path="src/y.py")).verdict is Verdict.DENY
    assert judge.judge(request(path="src/x.py", depth=3)).verdict is Verdict.DENY
    assert judge.judge(request(path="src/x.py", caller="other")).verdict is Verdict.DENY
    by_resource = PolicyEvaluator('permit (principal, action, resource) when { resource == Path::"x" };')
    assert [by_resource.judge(request(path=path)).verdict for path in "xyx"] == [Verdict.ALLOW, Verdict.DENY, Verdict.ALLOW]


def test_rule_that_cannot_be_evaluated_never_allows() -> None:
    """Cedar skips a rule that fails; skipping a forbid would allow everything."""
    assert verdict(PERMIT + 'permit (principal, action, resource) when { context.path like "x*" };', request()) is Verdict.ALLOW
    assert verdict('permit (principal, action, resource) when { context.path like "x*" };', request()) is Verdict.DENY
    assert verdict(PERMIT + '@ask("?") permit (principal, action, resource) when { context.path like "x*" };', request()) is Verdict.DENY
    judge = PolicyEvaluator(PERMIT + 'forbid (principal, action, resource) when { context.path like "x*" };')
    outcome = judge.judge(request())
    assert outcome.verdict is Verdict.DENY
    assert "path" in outcome.fault
    assert judge.judge(request(path="y")).verdict is Verdict.ALLOW


@given(
    st.text(), st.text(min_size=1), st.dictionaries(st.sampled_from(["path", "host", "x"]), st.text() | st.booleans() | st.integers(-9, 9))
)
def test_evaluator_accepts_any_request(caller: str, action: str, facts: dict[str, Any]) -> None:
    question = PolicyRequest(caller=caller or "x", action=action, depth=1, path=(caller,), facts=facts)
    assert (
        PolicyEvaluator(PERMIT + 'forbid (principal, action, resource) when { context has x && context.x == "no" };')
        .judge(question)
        .verdict
        in Verdict
    )


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("permit (principal, action, resource);\npermit (principal, actoin, resource);", 2, "actoin"),
        ("permit (principal, action, resource)", 1, "line 1"),
        ('\n\nforbid (principal, action, resource) when { context.x = "y" };', 3, "line 3"),
        ('@id("a") permit (principal, action, resource);\n@id("a") permit (principal, action, resource);', 2, "'a'"),
        ('@ask("x") forbid (principal, action, resource);', 1, "@ask"),
        ("permit (principal == ?principal, action, resource);", 1, "template"),
    ],
)
def test_syntax_error_is_reported_with_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(PolicyError) as caught:
        read_rules(text)
    assert caught.value.line == line
    assert words in str(caught.value)


@pytest.mark.parametrize("condition", ["(" * 3000 + "true" + ")" * 3000, " || ".join(["true"] * 3000), "context" + ".a" * 3000, "[" * 3000])
def test_rules_that_would_crash_the_parser_are_refused_first(condition: str) -> None:
    with pytest.raises(PolicyError):
        read_rules(f"permit (principal, action, resource) when {{ {condition} }};")


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_comments_end_where_cedar_ends_them(end: str) -> None:
    rules = read_rules(f"// c{end}forbid (principal, action, resource); // d;{end}permit (principal, action, resource);\n// the end")
    assert [rule.body["effect"] for rule in rules] == ["forbid", "permit"]


def path(text: str) -> dict[str, Any]:
    return path_facts(text, Path("/project"))


DEFAULT = PolicyEvaluator(default_text())


@pytest.mark.parametrize(
    ("action", "effect", "facts", "expected"),
    [
        ("digest", None, {}, "allow"),
        ("worker.read_file", "read", path("src/x.py"), "allow"),
        ("worker.read_file", "read", path("../x"), "stay-inside"),
        ("worker.read_file", "read", path(".env"), "keep-secrets"),
        ("worker.read_file", "read", path(".env.example"), "allow"),
        ("worker.read_file", "read", path("server.pem"), "keep-secrets"),
        ("worker.read_file", "read", path("keys/id_rsa.pub"), "allow"),
        ("worker.read_file", "read", path("deploy/SERVER.Pem"), "keep-secrets"),
        ("worker.read_file", "read", path(".git/config"), "keep-git"),
        ("worker.read_file", "read", path(".remit/remit.db"), "keep-the-record-unread"),
        ("worker.read_file", "read", path(".remit/scratch/sess_1/report.md"), "allow"),
        ("worker.write_file", "write", path("src/x.py"), "allow"),
        ("worker.write_file", "write", path(".git/hooks/pre-commit"), "keep-git"),
        ("worker.write_file", "write", path(".remit/policy.cedar"), "keep-the-record"),
        ("worker.write_file", "write", path("remit.toml"), "keep-the-record"),
        ("worker.write_file", "write", path("specs/state.json"), "keep-the-board"),
        ("researcher", "write", path("specs/001_x/reports/research-001.md"), "allow"),
        ("worker.write_file", "write", path(".claude/settings.json"), "ask-before-changing-tools"),
        ("worker.read_file", "read", path(".claude/settings.json"), "allow"),
        ("worker.delete_file", "delete", path("build/x"), "allow"),
        ("worker.delete_file", "delete", path("."), "keep-the-workspace"),
        ("worker.delete_file", "delete", {**path("build"), "recursive": True}, "ask-before-removing-folders"),
        ("worker.web_fetch", "network", {"scheme": "https", "host": "example.com"}, "allow"),
        ("worker.web_fetch", "network", {"scheme": "http", "host": "x", "address": "metadata"}, "public-addresses-only"),
        ("coder.execute_code", "execute", {"language": "python", "network": False}, "allow"),
        ("coder.execute_code", "execute", {"language": "python", "network": True}, "no-network-in-the-sandbox"),
    ],
)
def test_default_policy(action: str, effect: str | None, facts: dict[str, Any], expected: str) -> None:
    outcome = DEFAULT.judge(request(action, (effect,) if effect else (), **facts))
    if expected == "allow":
        assert outcome.verdict is Verdict.ALLOW, outcome
    else:
        assert outcome.verdict is not Verdict.ALLOW
        assert expected in [rule.name for rule in outcome.rules]


def test_direct_caller_is_not_asked_for_confirmation() -> None:
    wanted = {**path("build"), "recursive": True}
    assert DEFAULT.judge(request("worker.delete_file", ("delete",), caller="orchestrator", **wanted)).verdict is Verdict.ALLOW


def test_every_default_rule_has_a_name_a_reason_and_advice() -> None:
    for rule in DEFAULT.rules:
        assert not rule.name.startswith("line ")
        assert rule.is_permit or (rule.annotations["because"] and rule.annotations["advice"])
