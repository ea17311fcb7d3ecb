"""How much is measured: the full run that `RESULTS.md` reports, and a quick one that only proves the measuring works."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    rounds: int = 9
    """Repetitions of ours and of each floor, taken in turns: the machine's mood then meets all of them alike."""
    sequential: int = 1000
    """W1: delegations one after another, in each round."""
    flood: int = 5000
    """W2: delegations in all, in each round."""
    in_flight: int = 100
    """W2: how many of them at once."""
    chains: int = 400
    """W3."""
    waiting: int = 5000
    """W4."""
    sleepers: int = 500
    """W5: children of one caller, all over their deadline at once."""
    overruns: int = 5
    """W5: how often that is done."""
    history: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    growth_rounds: int = 41
    """Many short ones: what disturbs the machine for a moment then disturbs few of them, and the short histories stay short."""
    growth_sequential: int = 80
    growth_flood: int = 300
    hostile_repeats: int = 6
    hostile_at_once: int = 1
    tree: int = 50
    """Processes below one agent."""
    tree_repeats: int = 6
    aborts: int = 1000
    aborts_at_once: int = 8
    recoveries: int = 8
    """Runs of each writer that are stopped in the middle."""
    commands: int = 40
    """Commands one after another, in each round."""
    tool_calls: int = 200
    """Calls of an MCP tool one after another, in each round."""
    model_calls: int = 10
    """Turns of an agent of pydantic-ai, each with one call, in a run: few, for its own cost grows with what it remembers."""
    model_runs: int = 10
    """In each round."""
    file_reads: int = 300
    """Reads of a small file one after another, in each round."""
    tree_files: int = 20_000
    """In the tree that is searched."""
    searches: int = 3
    """In each round."""
    analysed: int = 2_000
    """Files of the tree that is analysed."""
    board_tasks: int = 1_000
    """On the board whose commands are timed."""
    board_rounds: int = 9
    board_warm: int = 1
    """Rounds before those that count: modules are compiled and files read once."""
    served_calls: int = 300
    """Calls through a door one after another, in each round."""
    streams: int = 200
    """Open at once, each of a delegation of its own."""
    stream_chunks: int = 20
    """That each of these says."""
    idle_streams: int = 1_000
    idle_seconds: float = 5.0
    """So long the server is watched while they idle, and while there are none."""
    held_seconds: float = 60.0
    """So long the doors are kept busy."""
    held_warm_seconds: float = 5.0
    """Before memory is looked at for the first time."""
    held_in_flight: int = 8
    seeds: int = 200
    """Of the simulations of learned decisions."""
    remote_calls: int = 15
    """Delegations to a worker one after another, in each round."""
    remote_rounds: int = 3
    remote_flood: int = 150
    remote_chunks: int = 100
    remote_cancels: int = 10
    remote_many: int = 10_000
    """Delegations to a worker, all in flight at once."""
    seconds_each: float = 120.0
    """No section takes longer: what is not done by then is reported as not measured."""
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
