"""Learned routing and hedging on simulated, seeded members. The decisions are those of the product (`core.choice`, `agents.group`)."""

import random
from collections import deque

from bench.figures import Figure, percentile
from bench.sizes import Sizes
from remit.agents.definition import Hedge
from remit.agents.group import may_hedge, patience_of
from remit.core.choice import By, ChoiceOutcome, Experience, rank

MEMBERS = ("a", "b", "c")
RATES = {"python": {"a": 0.85, "b": 0.70, "c": 0.55}, "lean": {"a": 0.55, "b": 0.65, "c": 0.80}}
ORACLE = 0.825
TURNS_AT = 200
RUNS = 2_000
KEPT = 400


def regrets(seed: int, steps: int, turns_at: int | None = None) -> list[float]:
    """Loss of each choice against the best member. From `turns_at` on, the best member for one language nearly always fails."""
    chance, experience, found = random.Random(seed), Experience(), []
    for step in range(steps):
        language = chance.choice(tuple(RATES))
        rates = dict(RATES[language])
        if turns_at is not None and step >= turns_at and language == "python":
            rates["a"] = 0.1
        chosen = rank(By.SUCCESS, MEMBERS, language, experience, {}, chance)[0].member
        found.append(max(rates.values()) - rates[chosen])
        experience.note(ChoiceOutcome(chosen, language, chance.random() < rates[chosen]))
    return found


def hedged(seed: int, hedge: Hedge | None) -> tuple[float, float]:
    """The 99th percentile of the durations and the share of extra starts. 5 % of the runs are six times slower."""
    chance, done, extra = random.Random(seed), deque[float](maxlen=KEPT), 0
    seen: list[float] = []
    patience: float | None = None
    for number in range(RUNS):
        if hedge is not None and number % 20 == 0:
            patience = patience_of(list(done), hedge)
        took = first = _seconds(chance)
        if patience is not None and first > patience and may_hedge(hedge, number + 1, extra):
            extra += 1
            took = min(first, patience + _seconds(chance))
        done.append(took)
        seen.append(took)
    return percentile(seen, 0.99), extra / RUNS


def _seconds(chance: random.Random) -> float:
    return chance.lognormvariate(4.0, 0.25) * (6 if chance.random() < 0.05 else 1)


async def measure(sizes: Sizes, _wanted: frozenset[str]) -> list[Figure]:
    seeds = range(sizes.seeds)
    early, late = (sum(sum(regrets(seed, steps)) for seed in seeds) / steps / len(seeds) / ORACLE for steps in (60, 400))
    before, after = [], []
    for seed in seeds:
        found = regrets(seed, 400, TURNS_AT)
        before.append(sum(found[100:TURNS_AT]) / 100)
        after.append(sum(found[TURNS_AT + 60 : TURNS_AT + 100]) / 40)
    recovered = sum(after) / len(after) / max(sum(before) / len(before), 1e-9)
    pairs = [(hedged(seed, None)[0], *hedged(seed, Hedge())) for seed in seeds]
    tail = sum(hedge for _, hedge, _ in pairs) / sum(plain for plain, _, _ in pairs)
    extra = sum(share for _, _, share in pairs) / len(pairs)
    return [
        _figure("regret of the choices after 60 outcomes", early, 0.10),
        _figure("regret of the choices after 400 outcomes", late, 0.06),
        Figure(
            section="routing",
            what="regret 60 to 100 choices after a member turned bad, against before",
            measured=f"{recovered:.2f} times",
            target="≤ 1.2 times",
            is_met=recovered <= 1.2,
        ),
        _figure("hedging: p99 that is left", tail, 0.5),
        _figure("hedging: extra starts", extra, 0.10),
    ]


def _figure(what: str, share: float, most: float) -> Figure:
    return Figure(section="routing", what=what, measured=f"{share:.1%}", target=f"≤ {most:.0%}", is_met=share <= most)
