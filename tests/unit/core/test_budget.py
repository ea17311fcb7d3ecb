"""Budgets are nested scopes: spending counts in every scope above, and the exceeded limit is named."""

import pytest

from remit import Budget, Limits, Misused


def test_each_exceeded_limit_is_named() -> None:
    for limits, drawn, word in (
        (Limits(delegations=1), {}, "1 delegations in all"),
        (Limits(alive=1), {}, "alive at once"),
        (Limits(tokens=5), {"tokens": 5}, "5 tokens"),
        (Limits(cost=0.5), {"cost": 0.5}, "0.5 of money"),
        (Limits(seconds=3), {}, "3 s of wall clock"),
    ):
        budget = Budget(limits, opened_at=0.0)
        assert budget.lacks(1.0) is None
        budget.enter()
        budget.charge(**drawn)  # type: ignore[arg-type]
        assert word in (budget.lacks(3.0) or "")


def test_charge_returns_the_limit_it_exceeded() -> None:
    outer = Budget(Limits(tokens=10), opened_at=0.0)
    inner = outer.narrowed(Limits(cost=1.0), 0.0)
    assert inner.charge(tokens=10, cost=1.0) is None, "spending exactly the limit is allowed"
    assert inner.charge(tokens=1) == "10 tokens"
    assert (outer.tokens, outer.cost) == (11, 1.0)


def test_remaining_budget_is_the_tightest_limit_of_each_kind() -> None:
    outer = Budget(Limits(delegations=10, tokens=100), opened_at=0.0)
    inner = outer.narrowed(Limits(delegations=50, seconds=5), 2.0)
    inner.enter()
    inner.charge(tokens=130)
    assert inner.left(3.0) == Limits(delegations=9, tokens=0, seconds=4.0)
    assert inner.spendable() == (0, None)
    assert inner.narrowed(Limits(cost=2), 2.0).spendable() == (0, 2)
    assert Budget(Limits(), opened_at=0.0).spendable() == (None, None)
    assert inner.ends_at == 7.0
    assert outer.ends_at is None


@pytest.mark.parametrize("wrong", [{"tokens": -1}, {"alive": "many"}, {"cost": float("nan")}, {"delegations": True}])
def test_limits_are_non_negative_numbers(wrong: dict[str, object]) -> None:
    with pytest.raises(Misused):
        Limits(**wrong)  # type: ignore[arg-type]
