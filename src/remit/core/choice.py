"""Chooses a member of a group from the outcomes of earlier choices. Pure; `agents.group` calls it.

With few outcomes, the member with the best optimistic rate is chosen: each starts with an assumed success, so that all are tried. With
many, rates are sampled at random (Thompson sampling), which keeps exploring. Old outcomes count less."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

HALF_LIFE = 200
"""Number of outcomes of a group after which an outcome counts half."""
MANY = 100
"""Number of outcomes from which rates are sampled."""
CONFIDENCE = 2
"""Weight of an outcome in the sampling; a higher weight explores less."""
RECENT = 12
"""Newest outcomes of a member that are examined separately to detect a decline early."""


class By(StrEnum):
    SUCCESS = "success"
    LOAD = "load"
    COST = "cost"
    ORDER = "order"


class ChoiceOutcome(NamedTuple):
    member: str
    context: str
    """Language, operation and complexity of the task."""
    is_success: bool
    cost: float = 0.0


@dataclass(slots=True)
class Tally:
    """Decaying counts of one member in one context."""

    successes: float = 0.0
    total: float = 0.0
    recent: list[bool] = field(default_factory=list)

    def note(self, is_success: bool) -> None:
        self.successes += is_success
        self.total += 1
        self.recent = [*self.recent[-RECENT + 1 :], is_success]

    @property
    def has_turned_bad(self) -> bool:
        """Whether the newest outcomes are far below the earlier rate."""
        if len(self.recent) < RECENT or self.total < 2 * RECENT:
            return False
        rate, count = self.successes / self.total, sum(self.recent)
        return count < RECENT * rate - 2.6 * math.sqrt(RECENT * rate * (1 - rate) + 0.25)

    def forget(self) -> None:
        """Keep only the newest outcomes."""
        self.successes, self.total = float(sum(self.recent)), float(len(self.recent))


class Score(NamedTuple):
    member: str
    value: float
    words: str


class Experience:
    """Outcomes of the choices of one group."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], Tally] = {}
        self._costs: dict[str, tuple[float, int]] = {}
        self.count = 0

    def note(self, outcome: ChoiceOutcome) -> None:
        decay = 0.5 ** (1 / HALF_LIFE)
        for tally in self._tallies.values():
            tally.successes *= decay
            tally.total *= decay
        tally = self._tallies.setdefault((outcome.context, outcome.member), Tally())
        tally.note(outcome.is_success)
        if tally.has_turned_bad:
            tally.forget()
        spent, runs = self._costs.get(outcome.member, (0.0, 0))
        self._costs[outcome.member] = (spent + outcome.cost, runs + 1)
        self.count += 1

    def tally(self, context: str, member: str) -> Tally:
        return self._tallies.get((context, member)) or Tally()

    def contexts(self) -> list[str]:
        return sorted({context for context, _ in self._tallies})

    def mean_cost(self, member: str) -> float | None:
        spent, runs = self._costs.get(member, (0.0, 0))
        return spent / runs if runs else None


def rank(
    by: By, members: Sequence[str], context: str, experience: Experience, loads: Mapping[str, int], chance: random.Random
) -> list[Score]:
    """The members in order, the chosen one first. Ties go to the least loaded, then to the one named first."""
    scores = [_score(by, member, context, experience, loads, chance) for member in members]
    if by is By.ORDER:
        return scores
    return sorted(scores, key=lambda one: (-round(one.value, 9), loads.get(one.member, 0), members.index(one.member)))


def _score(by: By, member: str, context: str, experience: Experience, loads: Mapping[str, int], chance: random.Random) -> Score:
    if by is By.LOAD:
        return Score(member, -float(loads.get(member, 0)), f"{loads.get(member, 0)} at work")
    if by is By.COST:
        cost = experience.mean_cost(member)
        return Score(member, 0.0, "not tried yet") if cost is None else Score(member, -cost, f"{cost:.4g} each")
    if by is By.ORDER:
        return Score(member, 0.0, "in the order of the settings")
    tally = experience.tally(context, member)
    words = f"{tally.successes:.1f} of {tally.total:.1f} succeeded" if tally.total else "not tried yet"
    if experience.count < MANY:
        return Score(member, (tally.successes + 1) / (tally.total + 1), words)
    failures = tally.total - tally.successes
    return Score(member, chance.betavariate(CONFIDENCE * tally.successes + 1, CONFIDENCE * failures + 1), words)
