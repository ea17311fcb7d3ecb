"""A decision in words: why it was refused or is asked, and what to do, for whoever reads it next."""

from collections.abc import Mapping
from typing import Any

from remit.core.policy import Asked, Verdict
from remit.core.secrets import redacted_text
from remit.policy.judging import Outcome, action_id, context_of, kind_of_principal, resource_of
from remit.policy.reading import in_words

_MEND = "Mend the rules: `remit policy check` says what is wrong."
_SHOWN = 300


def because_of(asked: Asked, outcome: Outcome, fault: str, source: str) -> tuple[str, str]:
    """Why, and what to do."""
    if fault:
        return f"The policy ({source}) refuses {_what(asked)} because it cannot be relied on: {fault.rstrip('.')}.", _MEND
    if outcome.verdict is Verdict.ASK:
        return question_of(asked, outcome), _advice(asked, outcome)
    if not outcome.rules:
        return f"No rule of the policy ({source}) permits {_what(asked)}.", (
            f'Add one to .remit/policy.cedar, such as: permit (principal == {kind_of_principal(asked.caller)}::"{asked.caller}", '
            f'action == Action::"{action_id(asked.action)}", resource);'
        )
    rule = outcome.rules[0]
    own = rule.annotations.get("because", "")
    reason = in_words(own, _facts(asked)) if own else f"The policy forbids {_what(asked)}."
    return f"{reason} (rule {rule.name}, {source})", _advice(asked, outcome)


def question_of(asked: Asked, outcome: Outcome) -> str:
    own = outcome.rules[0].annotations.get("ask", "") if outcome.rules else ""
    return in_words(own, _facts(asked)) if own else f"{asked.caller} wants {_what(asked)}."


def _advice(asked: Asked, outcome: Outcome) -> str:
    own = next((rule.annotations["advice"] for rule in outcome.rules if rule.annotations.get("advice")), "")
    return in_words(own, _facts(asked))


def _what(asked: Asked) -> str:
    resource = resource_of(asked)
    on = "" if resource["type"] == "Agent" else f" on {_shown(resource['id'])}"
    return f"{asked.action}{on} to {asked.caller}"


def _facts(asked: Asked) -> Mapping[str, Any]:
    return {name: _shown(value) for name, value in {**context_of(asked), "action": asked.action}.items()}


def facts_kept(facts: Mapping[str, Any]) -> dict[str, Any]:
    """For the audit log: short, and without what the path says already."""
    return {name: _shown(value) for name, value in facts.items() if name not in ("parts", "name")}


def _shown(value: Any) -> Any:
    """Not too long; and secrets are struck out before it is cut, because half of one is not recognised."""
    return redacted_text(value)[:_SHOWN] if isinstance(value, str) and len(value) > _SHOWN else value
