"""Each rung of the ladder: when it objects, and what it says."""

from dataclasses import replace

from remit.core.budget import Budget, Limits
from remit.runtime.accept import GuardInput, first_refusal

FINE = GuardInput(
    target="coder",
    now=100.0,
    caller_path=("orchestrator", "implement"),
    caller_depth=1,
    caller_hard_at=110.0,
    max_depth=3,
    budget=Budget(Limits(), opened_at=0.0),
    directory=lambda: ["coder", "researcher"],
)


def said(**changes: object) -> tuple[str, str]:
    error = first_refusal(replace(FINE, **changes))  # type: ignore[arg-type]
    assert error is not None
    return error.code, f"{error.message} {error.recommendation}"


def test_an_expired_or_closing_caller_may_not_delegate() -> None:
    assert said(caller_hard_at=100.0)[0] == "TIMEOUT"
    code, text = said(closing="it is being stopped")
    assert code == "CANCELLED"
    assert "it is being stopped" in text


def test_depth_three_runs_and_depth_four_does_not() -> None:
    assert first_refusal(replace(FINE, caller_depth=2)) is None
    code, text = said(caller_depth=3)
    assert code == "MAX_DEPTH_EXCEEDED"
    assert "orchestrator → implement → coder" in text
    assert "max_depth" in text


def test_a_cycle_names_path_and_target() -> None:
    code, text = said(caller_path=("orchestrator", "coder", "helper"))
    assert code == "CYCLE_DETECTED"
    assert "orchestrator → coder → helper → coder" in text


def test_by_task_only_the_same_agent_with_the_same_task_is_a_cycle() -> None:
    path = ("orchestrator", "coder")
    assert first_refusal(replace(FINE, caller_path=path, ancestor_tasks=[("coder", "x")], task="y")) is None
    assert said(caller_path=path, ancestor_tasks=[("coder", "x")], task="x")[0] == "CYCLE_DETECTED"


def test_a_spent_budget_names_the_limit() -> None:
    code, text = said(budget=Budget(Limits(delegations=0), opened_at=0.0))
    assert code == "BUDGET_EXCEEDED"
    assert "0 delegations in all" in text


def test_an_unknown_agent_is_met_with_the_nearest_name() -> None:
    code, text = said(target="codr", known=False)
    assert code == "INVALID_TARGET"
    assert "Did you mean coder?" in text
    assert "Known: coder, researcher" in said(target="zzz", known=False)[1]


def test_an_agent_that_the_settings_leave_out_is_told_to_be_left_out() -> None:
    assert "the setting builtin_agents leaves it out: add 'worker'" in said(target="worker.read_file", known=False)[1]
    assert "builtin_agents" not in said(target="coder.red", known=False)[1]
