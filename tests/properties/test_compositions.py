"""Any composition returns the data of its steps in order, compared with a simple model."""

import asyncio
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remit import Remit, agent, call, each, parallel, sequence
from remit.core.composition import CallStep, GroupStep, Step, composition_from

calls = st.integers(0, 20).map(lambda n: CallStep(request=call("number", n=n)))
lists = st.lists(st.integers(0, 20), max_size=4)


def groups(steps: st.SearchStrategy[Step]) -> st.SearchStrategy[Step]:
    some = st.lists(steps, min_size=1, max_size=4)
    return st.one_of(
        some.map(lambda inner: sequence(*inner)),
        st.builds(lambda inner, need: parallel(*inner, need=need, limit=2), some, st.sampled_from(["all", "any", 1])),
        st.builds(lambda items, need: each("number", over=items, into="n", need=need), lists, st.sampled_from(["all", "any"])),
    )


def expected(step: Step) -> tuple[bool, Any]:
    """Success and data of a step: `number` fails for multiples of 7."""
    match step:
        case CallStep(request=request):
            n = request.parameters["n"]
            return (False, None) if n % 7 == 0 else (True, n)
        case GroupStep(kind="sequence", steps=steps):
            data: list[Any] = []
            for one in steps:
                ok, value = expected(one)
                data.append(value)
                if not ok:
                    return False, data
            return True, data
        case GroupStep(kind="each", over=items, need=need):
            found = [(n % 7 != 0, None if n % 7 == 0 else n) for n in items]
        case GroupStep(steps=steps, need=need):
            found = [expected(one) for one in steps]
        case _:
            raise AssertionError(step)
    done = sum(ok for ok, _ in found)
    return not found or done >= (len(found) if need == "all" else 1), [value for _, value in found]


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(st.lists(st.recursive(calls, groups, max_leaves=12), min_size=1, max_size=4))
def test_composition_returns_the_data_of_its_steps(tmp_path_factory: Any, flows: list[Step]) -> None:
    @agent("number")
    async def number(n: int) -> int:
        await asyncio.sleep(0.001 * (n % 3))
        if n % 7 == 0:
            raise ValueError("a multiple of 7")
        return n

    async def run(root: Path) -> None:
        async with Remit.open(root, agents=[number]) as remit:
            for flow in flows:
                done = await remit.delegate(sequence(flow))
                ok, data = expected(sequence(flow))
                assert (done.ok, done.data) == (ok, data), flow.to_dict()
                assert composition_from(flow.to_dict()) == flow

    asyncio.run(run(tmp_path_factory.mktemp("composed")))
