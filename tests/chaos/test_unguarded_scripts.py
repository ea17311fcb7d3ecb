"""Scripts without `if __name__ == "__main__"`: their process agents must not restart them endlessly."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import asyncio, os, sys
with open("imports.txt", "a") as log:
    log.write("x")
if os.path.getsize("imports.txt") > 12:
    os._exit(9)
from remit import Remit, agent

@agent("in-a-process", isolation="process", timeout=10)
def in_a_process() -> str:
    return "Done. It ran."

async def main() -> None:
    async with Remit.open(".", agents=[in_a_process]) as remit:
        done = await remit.delegate("in-a-process")
        print(done.status, *(f"{one.message} {one.recommendation}" for one in done.errors))

asyncio.run(main())
"""


def test_unguarded_script_gets_advice_and_is_not_restarted_endlessly(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    run = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    assert "failed" in run.stdout
    assert 'if __name__ == "__main__"' in run.stdout
    assert (tmp_path / "imports.txt").stat().st_size <= 5
