"""A command that acts as researcher, planner and implementer: it reads a prompt on stdin and prints a return.

In phase 2 it writes a file and then hangs if the project has a file `hang`.
"""

import json
import re
import sys
import time
from pathlib import Path

PLAN = """# Plan

### Phase 1: Read rows [NOT STARTED]
- **Goal**: rows come out
- **Accept**: `test -s rows.py`

### Phase 2: Write CSV [NOT STARTED]
- **Goal**: a file goes in

### Phase 3: Document it [NOT STARTED]
- **Goal**: people can read of it
"""
FILES = {1: "rows.py", 2: "csv_out.py", 3: "docs.md"}


def main() -> None:
    prompt = sys.stdin.read()
    if "has a last look" in prompt:
        return
    if found := re.search(r"Carry out phase (\d+) of its plan", prompt):
        path, kind = implemented(int(found[1])), "implementation"
    else:
        wanted = re.search(r"Write the (report|plan) to `([^`]+)`", prompt)
        assert wanted is not None, prompt
        path, kind = wanted[2], wanted[1]
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(PLAN if kind == "plan" else "# Report\n\nRows are lines.\n")
    print(answer(prompt, kind, path))


def implemented(phase: int) -> str:
    Path(FILES[phase]).write_text(f'"""Phase {phase}."""\n')
    if phase == 2 and Path("hang").exists():
        time.sleep(600)
    return FILES[phase]


def answer(prompt: str, kind: str, path: str) -> str:
    match = re.search(r"session_id (\S+), agent_type (.+?), delegation_depth (\d+), delegation_path (\[.*\])\.", prompt)
    assert match is not None, prompt
    metadata = {
        "session_id": match[1],
        "agent_type": match[2],
        "delegation_depth": int(match[3]),
        "delegation_path": json.loads(match[4]),
    }
    fields = {
        "status": "completed",
        "summary": f"Wrote {path}. Nothing is left to do.",
        "artifacts": [{"type": kind, "path": path}],
        "metadata": metadata,
        "errors": [],
        "next_steps": "",
    }
    return json.dumps(fields)


main()
