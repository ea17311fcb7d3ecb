"""The benchmark with tiny sizes: it runs and reports; no figure is judged."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, env={**os.environ, "PYTHONPATH": str(ROOT)})


@pytest.mark.lab
@pytest.mark.parametrize(
    "sections",
    [
        "W1,W2,W3",
        "W4,W5,defaults",
        "start,commands,mcp,growth",
        "hostile,kill",
        "read_file,search_files,analysis",
        "board,models,composition",
        "grpc,http,pushed",
        "streams,held",
        "temporal,temporal_many",
        "sandbox,trust,postgres",
    ],
)
def test_each_section_reports_its_figures(sections: str, tmp_path: Path) -> None:
    out = tmp_path / "results.md"
    done = bench("--quick", "--only", sections, "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    written = out.read_text()
    assert "not measured" not in written
    for section in sections.split(","):
        assert f"\n| {section} " in written


@pytest.mark.lab
def test_stopped_agents_leave_no_process() -> None:
    done = bench("--quick", "--only", "orphans,recovery")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "missed" not in done.stdout
