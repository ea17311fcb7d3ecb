"""`remit metrics`: figures and their thresholds."""

import os
import signal
from pathlib import Path

import pytest
from cli_project import remit, remit_json, started

from remit import Remit, agent
from support.cli import run_process


@agent("shelf.look")
async def look(fail: bool) -> str:
    if fail:
        raise LookupError("lent out")
    return "here"


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import asyncio

    root = tmp_path_factory.mktemp("counted")

    async def main() -> None:
        async with Remit.open(root, agents=[look]) as opened:
            for number in range(20):
                await opened.delegate("shelf.look", fail=number % 4 == 0)

    asyncio.run(main())
    return root


def test_each_figure_has_its_threshold_and_its_meaning(counted: Path) -> None:
    wide = remit(counted, "metrics", "--since", "1h", env={**os.environ, "COLUMNS": "140", "PYTHONIOENCODING": "utf-8"})
    line = next(line for line in wide.stdout.splitlines() if line.startswith("delegation.success_rate"))
    assert "! 75.0 % (15 of 20)" in line
    assert "< 95 %" in line
    assert "completed, of those" in line


@pytest.mark.parametrize("columns", [60, 80])
def test_figures_stay_whole_where_room_is_short(counted: Path, columns: int) -> None:
    narrow = run_process("metrics", cwd=counted, env={**os.environ, "COLUMNS": str(columns), "PYTHONIOENCODING": "ascii"})
    assert "75.0 % (15 of 20)" in narrow.stdout
    assert "< 95 %" in narrow.stdout
    assert narrow.stdout.isascii()


def test_only_what_is_alarming_is_red(counted: Path) -> None:
    coloured = remit(counted, "metrics", env={**os.environ, "COLUMNS": "100", "FORCE_COLOR": "1", "TERM": "xterm"}).stdout
    by_name = {line.split()[0]: line for line in coloured.splitlines() if line.startswith("delegation.")}
    assert "31m" in by_name["delegation.success_rate"]
    assert "31m" not in by_name["delegation.timeout_rate"]
    assert "31m" not in by_name["delegation.latency.p50"]


def test_where_there_is_nothing_there_are_zeros(tmp_path: Path) -> None:
    assert "Nothing has been delegated here yet" in remit(tmp_path, "metrics").stdout
    assert remit_json(tmp_path, "metrics")["delegation.total"] == 0
    assert not (tmp_path / ".remit").exists()


def test_watching_goes_on_until_it_is_interrupted(counted: Path) -> None:
    with started(counted, "metrics", "--watch") as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline().startswith("metric")
        watching.send_signal(signal.SIGINT)
        _, said = watching.communicate(timeout=20)
    assert (watching.returncode, said) == (0, "")
