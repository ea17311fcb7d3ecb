"""A fake coding CLI that plays a script, one turn per start.

Started as `python fake_coder.py FOLDER [arguments]`. FOLDER/turns.json is a list of turns; a turn is a list of actions: a line to print (an
object or text), {"sleep": seconds}, {"close": fd}, {"exit": code}, {"err": text}, {"file": text} (written to the return file),
{"rollout": [lines]} (written as codex does).
`$RETURN` in a text is a valid return. Arguments and environment are recorded in FOLDER/calls.jsonl.
At SIGINT it reports the interruption as claude does.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

folder = Path(sys.argv[1])


def valid_return() -> str:
    metadata = {
        "session_id": os.environ["REMIT_SESSION"],
        "agent_type": "coder",
        "delegation_depth": 1,
        "delegation_path": ["orchestrator", "coder"],
    }
    done = {"status": "completed", "summary": "It is done. Nothing is left.", "artifacts": [], "metadata": metadata, "errors": []}
    return json.dumps(done)


def interrupted(*_: object) -> None:
    say({"type": "result", "subtype": "error_during_execution", "is_error": True, "terminal_reason": "aborted_tools"})
    os._exit(0)


def say(line: Any) -> None:
    if isinstance(line, str):
        print(line, flush=True)
        return

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: filled(one) for name, one in value.items()}
        if isinstance(value, list):
            return [filled(one) for one in value]
        return value.replace("$RETURN", valid_return()) if isinstance(value, str) else value

    print(json.dumps(filled(line)), flush=True)


def main() -> None:
    signal.signal(signal.SIGINT, interrupted)
    prompt = sys.stdin.read()
    calls = folder / "calls.jsonl"
    number = len(calls.read_text().splitlines()) if calls.exists() else 0
    with calls.open("a") as log:
        log.write(json.dumps({"argv": sys.argv[2:], "prompt": prompt, "environment": dict(os.environ), "folder": os.getcwd()}) + "\n")
    turns = json.loads((folder / "turns.json").read_text())
    for act in turns[min(number, len(turns) - 1)]:
        match act:
            case {"sleep": seconds}:
                time.sleep(seconds)
            case {"close": fd}:
                os.close(fd)
            case {"exit": code}:
                sys.exit(code)
            case {"file": text}:
                Path(os.environ["REMIT_RETURN_FILE"]).write_text(text.replace("$RETURN", valid_return()))
            case {"err": text}:
                print(text, file=sys.stderr, flush=True)
            case line:
                say(line)


main()
