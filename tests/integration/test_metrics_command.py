"""`remit metrics`: figures and their thresholds."""

import os
from pathlib import Path

import pytest
from cli_project import remit, remit_json

from remit import Remit, agent


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


def test_metric_beyond_its_threshold_is_marked(counted: Path) -> None:
    wide = remit(counted, "metrics", "--since", "1h", env={**os.environ, "COLUMNS": "140", "PYTHONIOENCODING": "utf-8"})
    line = next(line for line in wide.stdout.splitlines() if line.startswith("delegation.success_rate"))
    assert "! 75.0 % (15 of 20)" in line
    assert "< 95 %" in line


def test_metrics_of_an_empty_project_are_zero(tmp_path: Path) -> None:
    assert "Nothing has been delegated here yet" in remit(tmp_path, "metrics").stdout
    assert remit_json(tmp_path, "metrics")["delegation.total"] == 0
    assert not (tmp_path / ".remit").exists()
