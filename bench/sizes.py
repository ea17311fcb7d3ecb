"""Sizes of the measurements: the full run that `RESULTS.md` reports, and a quick one that only checks that the benchmarks work."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    rounds: int = 9
    """Repetitions of remit and of each floor, alternating, so that load changes affect all of them equally."""
    sequential: int = 1000
    """W1: sequential delegations per round."""
    flood: int = 5000
    """W2: total delegations per round."""
    in_flight: int = 100
    """W2: concurrent delegations."""
    chains: int = 400
    """W3."""
    waiting: int = 5000
    """W4."""
    sleepers: int = 500
    """W5: children of one caller that all reach their deadline at once."""
    overruns: int = 5
    """W5: repetitions."""
    history: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    growth_rounds: int = 41
    """Many short rounds: a brief disturbance affects few of them, and short histories stay short."""
    growth_sequential: int = 80
    growth_flood: int = 300
    hostile_repeats: int = 6
    hostile_at_once: int = 1
    tree: int = 50
    """Descendant processes of one agent."""
    tree_repeats: int = 6
    aborts: int = 1000
    aborts_at_once: int = 8
    recoveries: int = 8
    """Runs of each writer that are stopped in the middle."""
    commands: int = 40
    """Sequential commands per round."""
    tool_calls: int = 200
    """Sequential MCP tool calls per round."""
    model_calls: int = 10
    """Turns of a pydantic-ai agent per run, each with one call: few, because its own cost grows with its history."""
    model_runs: int = 10
    """Per round."""
    file_reads: int = 300
    """Sequential reads of a small file per round."""
    tree_files: int = 20_000
    """In the searched tree."""
    searches: int = 3
    """Per round."""
    analysed: int = 2_000
    """Files of the analysed tree."""
    board_tasks: int = 1_000
    """On the measured board."""
    board_rounds: int = 9
    board_warm: int = 1
    """Warm-up rounds: modules are compiled and files read once."""
    served_calls: int = 300
    """Sequential calls through one API per round."""
    streams: int = 200
    """Concurrent streams, each of a separate delegation."""
    stream_chunks: int = 20
    """Per stream."""
    idle_streams: int = 1_000
    idle_seconds: float = 5.0
    """Seconds of observing the server with idle streams, and without streams."""
    held_seconds: float = 60.0
    """Seconds of sustained load on the APIs."""
    held_warm_seconds: float = 5.0
    """Seconds before the first memory sample."""
    held_in_flight: int = 8
    seeds: int = 200
    """Seeds of the simulated learned decisions."""
    remote_calls: int = 15
    """Sequential delegations to a worker per round."""
    remote_rounds: int = 3
    remote_flood: int = 150
    remote_chunks: int = 100
    remote_cancels: int = 10
    remote_many: int = 10_000
    """Concurrent delegations to a worker."""
    seconds_each: float = 120.0
    """Time limit per section; unfinished sections are reported as not measured."""
    seconds_all: float = 560.0


FULL = Sizes()
QUICK = Sizes(
    remote_calls=3,
    remote_rounds=1,
    remote_flood=20,
    remote_chunks=5,
    remote_cancels=2,
    remote_many=100,
    rounds=2,
    sequential=50,
    flood=200,
    in_flight=50,
    chains=20,
    waiting=300,
    sleepers=50,
    overruns=1,
    history=(100, 1_000),
    growth_rounds=2,
    growth_sequential=30,
    growth_flood=100,
    hostile_repeats=1,
    hostile_at_once=3,
    tree=8,
    tree_repeats=1,
    aborts=12,
    aborts_at_once=4,
    recoveries=1,
    commands=5,
    tool_calls=20,
    model_calls=5,
    model_runs=2,
    file_reads=20,
    tree_files=300,
    searches=1,
    analysed=200,
    board_tasks=1_000,
    board_rounds=1,
    board_warm=0,
    served_calls=20,
    streams=20,
    stream_chunks=5,
    idle_streams=50,
    idle_seconds=0.3,
    held_seconds=0.6,
    held_warm_seconds=0.4,
    seeds=2,
    seconds_each=60.0,
)
