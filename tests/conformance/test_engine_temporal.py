"""The Temporal engine passes `support.engine_suite` over SQLite: with caller and worker in one process, and with a caller that
runs no agents and two worker processes."""

import hashlib
from collections.abc import AsyncIterator, Container, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from remit import Remit
from support import engine_suite, engine_time_suite, engine_tree_suite
from support.engine_features import engine_cache_suite, engine_composition_suite, engine_group_suite
from support.engine_samples import until
from support.engine_suite import ENGINE_CHECKS, Check, OpenRemit
from support.lab import is_lab
from support.temporal_server import TemporalServer
from support.worker_processes import AgentServer, WorkerForks

CANNOT_HOLD = {
    engine_composition_suite.a_composition_that_is_stopped_hands_back_what_came_before: "a worker gets the delegation only after 0.3 s",
    engine_time_suite.the_more_urgent_run_first_and_equals_in_order: "Temporal keeps the order of equals only within one partition",
    engine_suite.closing_stops_and_settles_what_still_runs: "a delegation in a task queue outlives the process that started it",
    engine_cache_suite.the_content_of_the_files_that_are_read_decides: "workers do not record which files they read",
    engine_time_suite.waiting_raises_priority_so_that_low_is_never_starved: "Temporal timers last at least a second",
}
"""Checks that an engine on Temporal task queues does not pass."""
LONGEST_SECONDS = 900 if is_lab() else 120
"""Thousands of delegations over a development server take minutes on a busy machine."""
BUILT_IN = ("compose",)
"""Built-in agents that the checks use. Each further one adds a queue to poll."""
LAB = {engine_time_suite.thousands_in_flight_all_come_back, engine_time_suite.an_agent_is_notified_at_the_soft_deadline_and_may_return}
"""A development server runs about fifty delegations a second. On a busy machine a worker gets its task after 0.1 s."""


IN_TEST = "its agent runs in the process of the test, which reports this differently"
ELSEWHERE: dict[Check, str] = {
    engine_cache_suite.calls_with_keys_acceptance_or_secrets_are_not_cached: "secrets are not passed to other processes",
    engine_group_suite.a_slow_run_is_hedged_and_the_loser_is_stopped: "a worker gets the delegation only after 0.3 s",
    engine_time_suite.an_agent_that_ignores_cancellation_is_abandoned_and_reported: "only the worker knows about an abandoned agent",
    engine_time_suite.waiting_for_a_slot_counts_against_the_deadline: "a worker gets the first delegation only after 0.2 s",
    engine_tree_suite.an_agent_that_leaves_the_program_ends_only_itself: IN_TEST,
    engine_tree_suite.a_result_that_cannot_be_stored_is_an_invalid_return: IN_TEST,
}
"""Further checks that it does not pass with workers in other processes."""
SAMPLE = {
    engine_suite.a_delegation_is_recorded_before_it_runs,
    engine_suite.an_outcome_is_settled_before_its_caller_hears,
    engine_suite.chunks_arrive_in_order_while_it_runs_and_the_last_is_the_return,
    engine_suite.a_live_key_returns_the_running_delegation,
    engine_suite.cancelling_a_tree_acknowledges_every_node,
    engine_tree_suite.the_depth_is_limited,
    engine_tree_suite.cycles_are_refused_however_long_they_are,
    engine_tree_suite.errors_of_children_travel_up,
    engine_tree_suite.delegations_in_all_and_alive_at_once_are_limited,
    engine_tree_suite.tokens_and_money_are_limited_for_the_tree,
    engine_time_suite.a_child_is_never_given_more_time_than_its_caller_has,
    engine_time_suite.callers_lend_their_slots_to_their_children,
    engine_group_suite.a_group_adds_no_depth_and_no_name_and_its_choice_is_on_record,
}
"""`make test` runs these over worker processes and the others in one process. `make lab` runs all of them over both."""


def _settings(root: Path, temporal: TemporalServer, settings: dict[str, Any]) -> dict[str, Any]:
    project = f"p{hashlib.sha256(str(root).encode()).hexdigest()[:12]}"
    return {
        "builtin_agents": BUILT_IN,
        **settings,
        "engine": {"kind": "temporal", "project": project, "temporal": {"address": temporal.address}},
    }


@pytest.fixture
def one_process(temporal: TemporalServer) -> OpenRemit:
    @asynccontextmanager
    async def opened(root: Path, agents: list[Any], **settings: Any) -> AsyncIterator[Remit]:
        async with Remit.open(root, agents=agents, settings=_settings(root, temporal, settings)) as remit:
            await remit.work()
            yield remit

    return opened


@pytest.fixture
def two_workers(temporal: TemporalServer, forks: WorkerForks) -> Iterator[OpenRemit]:
    """Each worker has its own slots, so a check that counts slots uses a single worker."""

    @asynccontextmanager
    async def opened(root: Path, agents: list[Any], **settings: Any) -> AsyncIterator[Remit]:
        serving, chosen = AgentServer(folder, agents), _settings(root, temporal, settings)
        count = 1 if "slots_total" in settings else 2
        started = [forks.start(root, chosen, specs=serving.specs, socket=serving.socket) for _ in range(count)]
        try:
            async with serving.serving(), Remit.open(root, agents=serving.bridged(), settings=chosen) as remit:
                for worker in started:
                    await worker.wait_ready()
                await until(lambda: serving.connected >= count)
                define = remit.directory.define
                remit.directory.define = lambda definition: (define(definition), serving.define(definition))[0]  # type: ignore[method-assign]
                yield remit
        finally:
            for worker in started:
                worker.kill()

    with TemporaryDirectory() as folder:
        yield opened


def checks(left_to_lab: Container[Check]) -> list[Any]:
    return [pytest.param(one, marks=[pytest.mark.lab] if one in left_to_lab else [], id=one.__name__) for one in ENGINE_CHECKS]


@pytest.mark.timeout(LONGEST_SECONDS)
@pytest.mark.parametrize("check", checks(LAB | SAMPLE))
async def test_temporal_engine_passes_the_check(check: Check, one_process: OpenRemit, tmp_path: Path) -> None:
    if check in CANNOT_HOLD:
        pytest.skip(CANNOT_HOLD[check])
    await check(one_process, tmp_path)


@pytest.mark.timeout(LONGEST_SECONDS)
@pytest.mark.parametrize("check", checks(set(ENGINE_CHECKS) - SAMPLE))
async def test_temporal_engine_passes_the_check_with_two_worker_processes(check: Check, two_workers: OpenRemit, tmp_path: Path) -> None:
    if check in (missing := {**CANNOT_HOLD, **ELSEWHERE}):
        pytest.skip(missing[check])
    await check(two_workers, tmp_path)
