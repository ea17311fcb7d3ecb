"""policy: cost of one decision with the default rules, including its audit log entry. Each decision is about a different path or host."""

import tempfile
import time
from pathlib import Path

from bench.figures import Figure, median, microseconds, percentile
from bench.sizes import Sizes
from remit.core.deadline import SYSTEM_CLOCK
from remit.core.policy import Policy, PolicyRequest
from remit.policy.engine import PolicyEvaluator, open_policy
from remit.policy.rules import default_text
from remit.runtime.policy_facts import path_facts, url_facts

TARGET_SECONDS = 100e-6
_ROOT = Path("/project")


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    reading, fetching, fitting, plain, first = [], [], [], [], []
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as folder:
        policy = open_policy(Path(folder), "strict", owner="bench", clock=SYSTEM_CLOCK)
        for number in range(sizes.rounds):
            reading.append(percentile(_timed(policy, [_reading(f"src/{number}/{one}.py") for one in range(sizes.chains)]), 0.5))
            fetching.append(percentile(_timed(policy, [_fetching(f"h{one}.r{number}.example") for one in range(sizes.chains)]), 0.5))
            fitting.append(percentile(_timed(policy, [_reading(f".remit/scratch/{number}/{one}.md") for one in range(sizes.chains)]), 0.5))
            plain.append(_glanced(policy, sizes.sequential))
            first.append(percentile(_evaluated([_reading(f".remit/scratch/{one}.md") for one in range(sizes.chains)]), 0.5))
        policy.close()
    slowest = max(median(reading), median(fetching), median(fitting))
    return [
        Figure(
            section="policy", what="a plain delegation that was decided before, as each passes it", measured=f"{median(plain) * 1e6:.2f} µs"
        ),
        Figure(section="policy", what="a decision on a path, never asked before, p50", measured=microseconds(median(reading))),
        Figure(
            section="policy",
            what="a decision on a path that a rule names, never asked before, p50",
            measured=microseconds(median(fitting)),
        ),
        Figure(section="policy", what="a decision on a host, never asked before, p50", measured=microseconds(median(fetching))),
        Figure(
            section="policy",
            what="the slowest of these, its line in the audit log written",
            measured=microseconds(slowest),
            target=f"< {TARGET_SECONDS * 1e6:g} µs",
            is_met=slowest < TARGET_SECONDS,
        ),
        Figure(section="policy", what="the first decision of its kind, evaluated by Cedar, p50", measured=microseconds(median(first))),
    ]


def _timed(policy: Policy, asked: list[PolicyRequest]) -> list[float]:
    taken = []
    for one in asked:
        began = time.perf_counter()
        decision = policy.decide(one)
        taken.append(time.perf_counter() - began)
        assert decision.verdict == "allow", decision  # a refusal would be quick, and would look like speed
    return taken


def _evaluated(asked: list[PolicyRequest]) -> list[float]:
    """Evaluate the rules alone, without the log."""
    judge = PolicyEvaluator(default_text())
    taken = []
    for one in asked:
        began = time.perf_counter()
        judge.judge(one)
        taken.append(time.perf_counter() - began)
    return taken


def _reading(path: str) -> PolicyRequest:
    return _on_the_way("worker.read_file", ("read",), path_facts(path, _ROOT))


def _fetching(host: str) -> PolicyRequest:
    return _on_the_way("worker.web_fetch", ("network",), {**url_facts(f"https://{host}/page", _ROOT), "address": "public", "method": "GET"})


def _on_the_way(action: str, effects: tuple[str, ...], facts: dict[str, object]) -> PolicyRequest:
    """These decisions are logged before they are returned; decisions about delegations are written with the group."""
    return PolicyRequest(
        caller="coder",
        action=action,
        depth=2,
        path=("orchestrator", "coder"),
        effects=effects,
        facts=facts,
        timeout_seconds=60.0,
        session_id="sess_1790000000_aaaaaa",
        is_delegation=False,
    )


def _glanced(policy: Policy, times: int) -> float:
    policy.decide(
        PolicyRequest(caller="coder", action="digest", depth=2, path=("orchestrator", "coder"), session_id="sess_1790000000_aaaaaa")
    )
    began = time.perf_counter()
    for number in range(times):
        policy.cached_decision("coder", "digest", 2, (), "sess_1790000000_aaaaaa")
        if number % 100 == 99:
            policy.write_out()
    return (time.perf_counter() - began) / times
