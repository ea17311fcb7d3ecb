"""Agents in processes of their own: they answer, speak and fail like any other, and starting one is cheap."""

import asyncio
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import process_agents as agents
import pytest
from process_desk import NotingDesk

from remit.agents.process import AgentRaised, Job, ProcessPool, target_of
from remit.core.errors import AgentCrashed, Failed, Misused
from remit.system.processes import marked


class House:
    def __init__(self, root: Path) -> None:
        self.owner = uuid.uuid4().hex[:8]
        self.pool = ProcessPool(project="test", owner_id=self.owner)
        self.desk = NotingDesk(root)

    async def run(self, function: Callable[..., Any], **parameters: Any) -> Any:
        return await self.pool.run(Job(target=target_of(function), parameters=parameters), self.desk.context())

    def left(self) -> list[int]:
        return marked(f"test:{self.owner}:")


def children() -> set[str]:
    """Of this process, zombies among them."""
    return {pid for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()}


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    made = House(tmp_path)
    yield made
    await made.pool.close()
    assert made.left() == []


async def test_a_function_answers_from_its_own_process(house: House) -> None:
    assert await house.run(agents.add, a=2, b=3) == 5


async def test_parameters_are_checked_in_the_worker_too(house: House) -> None:
    with pytest.raises(Misused, match="b: it is required"):
        await house.run(agents.add, a=2)


async def test_a_sync_agent_gets_the_blocking_twin_of_the_context(house: House) -> None:
    assert await house.run(agents.blocking, name="Ada") == ["Ada", "Ada", 1]
    assert house.desk.notes == [("progress", "blocking", 0.1), ("checkpoint", "Ada")]


async def test_an_async_agent_has_the_same_context(house: House) -> None:
    """S1.6: lineage, deadline, task and budget cross the pipe; what it says reaches the real desk."""
    said = await house.run(agents.greet, name="Ada")
    lineage = house.desk.delegation.lineage
    assert said["session_id"] == said["environment"] == lineage.session_id
    assert said["path"] == list(lineage.path)
    assert said["depth"] == 1
    assert said["left"] is True
    assert said["saved"] == {"at": "Ada"}
    assert said["scratch"] == str(house.desk.scratch)
    assert said["budget"] == 100
    assert said["task"] == "A title"
    assert house.desk.notes == [
        ("progress", "greeting", 0.5),
        ("emit", {"hello": "Ada"}),
        ("artifact", "out.md", "report", "a file"),
        ("spend", 3, 0.5),
        ("checkpoint", {"at": "Ada"}),
    ]


async def test_children_are_delegated_over_the_pipe(house: House) -> None:
    assert await house.run(agents.ask_child) == ["a", "b", "c", "d", [{"chunk": 1}, {"chunk": 2}]]


async def test_a_refusal_arrives_in_the_worker_as_what_it_is(house: House) -> None:
    assert await house.run(agents.ask_what_is_refused) == "Refused MAX_DEPTH_EXCEEDED Do it yourself."


async def test_the_soft_deadline_reaches_the_worker(house: House) -> None:
    """S2.4: told to hand in what it has."""
    running = asyncio.create_task(house.run(agents.wait_for_hand_in))
    await house.desk.heard.wait()
    house.desk.tell_hand_in()
    assert await running == "False True"


async def test_a_worker_that_is_stopped_is_not_told_to_hand_in(house: House, tmp_path: Path) -> None:
    """S2.4: who is cancelled is owed no return, and would take the word for its deadline."""
    running = asyncio.create_task(house.run(agents.say_when_left, path=str(tmp_path / "left.txt")))
    await house.desk.heard.wait()
    house.desk.soft.set()  # as a stop does
    running.cancel()
    await asyncio.wait([running])
    assert (tmp_path / "left.txt").read_text() == "False"


async def test_an_exception_comes_back_with_type_message_and_traceback(house: House) -> None:
    with pytest.raises(AgentRaised) as raised:
        await house.run(agents.raise_value_error)
    assert raised.value.type_name == "ValueError"
    assert "no good" in raised.value.message
    assert "raise_value_error" in raised.value.traceback_text


async def test_an_exit_in_the_middle_is_a_crash_with_code_and_end_of_stderr(house: House) -> None:
    with pytest.raises(AgentCrashed) as crashed:
        await house.run(agents.leave, code=9)
    assert crashed.value.exit_code == 9
    assert "about to leave" in crashed.value.stderr_tail
    with pytest.raises(AgentCrashed) as crashed:
        await house.run(agents.leave_politely)
    assert crashed.value.exit_code == 3


async def test_a_value_that_json_cannot_hold_is_said_so(house: House) -> None:
    with pytest.raises(Failed, match="JSON"):
        await house.run(agents.not_json)


async def test_a_large_answer_arrives_and_a_too_large_one_is_refused_with_advice(house: House) -> None:
    assert len(await house.run(agents.large, megabytes=20)) == 20 * 1024 * 1024
    with pytest.raises(Failed, match="file"):
        await house.run(agents.large, megabytes=70)


async def test_functions_that_no_other_process_can_find_are_refused_with_advice() -> None:
    def inner() -> None: ...

    for function in (inner, lambda: None):
        with pytest.raises(Misused, match="top level of a module"):
            target_of(function)


async def test_a_file_that_is_no_module_is_found(house: House, tmp_path: Path) -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    file = tmp_path / "loner.py"
    file.write_text("def double(x: int) -> int:\n    return 2 * x\n")
    spec = spec_from_file_location("remit_project_agents_loner", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    assert await house.run(module.double, x=21) == 42
    file.write_text("raise RuntimeError('broken file')\n")
    with pytest.raises(AgentCrashed, match="broken file") as crashed:
        await house.run(module.double, x=21)
    assert "RuntimeError" in crashed.value.stderr_tail


async def test_a_module_that_breaks_at_import_does_not_break_the_warm_up(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dies_at_import.py").write_text("import os\nos._exit(1)\n")
    from remit.agents.process.target import Place, Target

    bad = Target(place=Place.FILE, module="dies_at_import", file=str(tmp_path / "dies_at_import.py"), qualname="x")
    house.pool.warm_up([bad, target_of(agents.add)])
    await house.pool.wait_warm()
    assert await house.run(agents.add, a=1, b=1) == 2


async def test_warming_up_again_adds_to_what_is_loaded_ahead(house: House, tmp_path: Path) -> None:
    """As with an agent that is registered, or loaded, while all is open."""
    (tmp_path / "loaded_ahead.py").write_text("import sys\ndef was_loaded(): return 'loaded_ahead' in sys.modules\n")
    from remit.agents.process.target import Place, Target

    more = Target(place=Place.FILE, module="loaded_ahead", file=str(tmp_path / "loaded_ahead.py"), qualname="was_loaded")
    house.pool.warm_up([target_of(agents.add)])
    house.pool.warm_up([target_of(agents.add), more])
    await house.pool.wait_warm()
    assert await house.run(agents.add, a=1, b=1) == 2


@pytest.mark.parametrize("seconds", [0.0, 0.01, 0.1])
async def test_a_pool_that_is_closed_while_it_warms_up_leaves_no_zombie(tmp_path: Path, seconds: float) -> None:
    before = children()
    house = House(tmp_path)
    house.pool.warm_up([target_of(agents.add)], for_commands=True)
    await asyncio.sleep(seconds)
    await house.pool.close()
    assert children() <= before


async def test_warm_workers_cost_far_less_than_an_interpreter(house: House) -> None:
    """Issue 2, item 5: no interpreter start-up each time. Measured in the same run, as a ratio."""
    house.pool.warm_up([target_of(agents.add)])
    await house.pool.wait_warm()

    async def ours() -> float:
        began = time.perf_counter()
        await house.run(agents.add, a=1, b=1)
        return time.perf_counter() - began

    def theirs() -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import remit.flow.context"], check=True)
        return time.perf_counter() - began

    warm, cold = [], []
    for _ in range(7):
        warm.append(await ours())
        cold.append(theirs())
    assert min(warm) < min(cold) / 2, (min(warm), min(cold))
