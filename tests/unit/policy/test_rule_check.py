"""`remit policy check`: mistakes in rules are reported with the line and a correction."""

import pytest

from remit import AgentSpec, Effect
from remit.core.policy import Fact
from remit.policy.rule_check import check_rules
from remit.policy.rules import default_text

SPECS = [
    AgentSpec(
        name="worker.read_file",
        effects=(Effect.READ,),
        acts_on={"path": Fact.PATH},
        parameters_schema={"properties": {"path": {"type": "string"}, "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}},
    ),
    AgentSpec(name="coder"),
]


def test_default_policy_has_no_problems() -> None:
    assert check_rules(default_text(), SPECS) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('permit (principal, action == Action::"worker.raed_file", resource);', "worker.read_file"),
        ('permit (principal == Agent::"codr", action, resource);', "Did you mean coder?"),
        ('permit (principal == Agent::"token:ci", action, resource);', 'Caller::"token:NAME"'),
        ('permit (principal == Caller::"ci", action, resource);', 'Caller::"token:NAME"'),
        ("permit (principal, action, resource) when { context has pth };", "Did you mean path"),
        ('@becuase("x") permit (principal, action, resource);', "because"),
        ("permit (principal, action, resource) when { context.depth == 'x' };", "line 2"),
        ('permit (principal, action, resource) when { context.depth == "x" };', "not compatible"),
        ('permit (principal, action, resource) when { context.path like "x*" };', "context has"),
        ('permit (principal, action, resource in Path::"src");', "context.path like"),
        ('permit (principal, action, resource == File::"src");', "File"),
        ('permit (principal, action, resource) when { context has limit && context.limit == "x" };', "not compatible"),
    ],
)
def test_mistakes_are_reported(text: str, words: str) -> None:
    problems = check_rules("\n" + text, SPECS)
    assert any(problem.is_error and problem.line in (1, 2) for problem in problems), problems
    assert words in " ".join(map(str, problems))


def test_remote_callers_can_be_named() -> None:
    rules = (
        'permit (principal == Caller::"cert:a.example.com", action, resource); permit (principal is Caller, action, resource)'
        ' when { context.on_behalf like "token:*" };'
    )
    assert check_rules(rules, SPECS) == []


def test_unknown_actions_and_facts_are_notes_not_errors() -> None:
    text = 'permit (principal, action == Action::"deploy", resource) when { context has cluster && context.cluster == "test" };'
    problems = check_rules(text, SPECS)
    assert problems
    assert not any(problem.is_error for problem in problems)
