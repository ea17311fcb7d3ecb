"""`remit policy check`: mistakes in rules are reported with the line and a correction."""

import pytest

from remit.core.agents import AgentSpec
from remit.core.policy import Effect, Fact
from remit.policy.rule_check import check_rules, known_actions, known_facts, schema_text
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
        ('permit (principal == Agent::"worker", action, resource);', 'Write Agent::"worker.read_file", or `when'),
        ('permit (principal == Agent::"token:ci", action, resource);', 'write Caller::"token:ci"'),
        ('permit (principal == Caller::"ci", action, resource);', 'write Caller::"token:ci"'),
        ('permit (principal == Caller::"orchestrator", action, resource);', 'Agent::"orchestrator"'),
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


def test_redundant_and_contradictory_rules_are_reported() -> None:
    everything = "forbid (principal, action, resource);"
    problems = " ".join(map(str, check_rules(f"{everything}\n{everything}", SPECS)))
    assert "Nothing is permitted" in problems
    assert "forbids everything" in problems
    assert "says the same as" in problems


def test_schema_with_unusual_agent_names_is_valid() -> None:
    odd = [AgentSpec(name='a"b\\c'), AgentSpec(name="read", effects=(Effect.WRITE,))]
    (note,) = check_rules("permit (principal, action, resource);", odd)
    assert not note.is_error
    assert "no rule mentions context.protected" in note.what
    assert "agent.read" in schema_text(known_actions(odd), known_facts(odd))
