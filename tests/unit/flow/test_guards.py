"""The checks before a delegation runs: when each refuses, and with which message."""

from dataclasses import replace

from remit import Budget, Limits
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


def refusal(**changes: object) -> tuple[str, str]:
    error = first_refusal(replace(FINE, **changes))  # type: ignore[arg-type]
    assert error is not None
    return error.code, f"{error.message} {error.recommendation}"


def test_depth_three_is_allowed_and_depth_four_refused() -> None:
    assert first_refusal(replace(FINE, caller_depth=2)) is None
    code, text = refusal(caller_depth=3)
    assert code == "MAX_DEPTH_EXCEEDED"
    assert "orchestrator → implement → coder" in text
    assert "max_depth" in text


def test_cycle_is_refused_with_path_and_target() -> None:
    code, text = refusal(caller_path=("orchestrator", "coder", "helper"))
    assert code == "CYCLE_DETECTED"
    assert "orchestrator → coder → helper → coder" in text


def test_cycle_check_by_task_compares_agent_and_task() -> None:
    path = ("orchestrator", "coder")
    assert first_refusal(replace(FINE, caller_path=path, ancestor_tasks=[("coder", "x")], task="y")) is None
    assert refusal(caller_path=path, ancestor_tasks=[("coder", "x")], task="x")[0] == "CYCLE_DETECTED"


def test_unknown_agent_is_refused_with_the_nearest_name() -> None:
    code, text = refusal(target="codr", known=False)
    assert code == "INVALID_TARGET"
    assert "Did you mean coder?" in text
    assert "Known: coder, researcher" in refusal(target="zzz", known=False)[1]


def test_agent_excluded_by_settings_is_reported_as_excluded() -> None:
    assert "the setting builtin_agents leaves it out: add 'worker'" in refusal(target="worker.read_file", known=False)[1]
    assert "builtin_agents" not in refusal(target="coder.red", known=False)[1]
