"""Whether files that a model wrote parse. Python and JSON are tried here, on a thread; the rest in a process of its own.

Grammars of other languages can be driven into hours, or into a crash, by text that was made for it: such a file ends a process that
nobody else needs, and is said not to have been tried. Used by `composing`.
"""

import asyncio
import json
import resource
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from remit.agents.builtin.coder.review.languages import language
from remit.agents.builtin.coder.review.syntax import fault_in, is_parsed
from remit.system.threads import off_loop

MOST_SECONDS = 15
MOST_BYTES = 4 << 30
_HERE = frozenset({"python", "json"})
_MAY_BE_EMPTY = ("__init__.py", "py.typed", ".gitkeep", ".keep", ".nojekyll")
_PROGRAM = (
    "import json, sys; job = json.load(sys.stdin); sys.path[:] = job['path'];"
    "from remit.agents.builtin.coder.parsing import tell; tell(job['files'])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    faults: Mapping[str, str] = field(default_factory=dict)
    """By path: line, and what is wrong there."""
    tried: frozenset[str] = frozenset()
    """Those that a parser has read to the end."""


async def parsed(files: Mapping[str, str], seconds: float = MOST_SECONDS) -> Parsed:
    void = {path: "line 1: there is nothing in it" for path, text in files.items() if _is_void(path, text)}
    rest = {path: text for path, text in files.items() if path not in void and is_parsed(path, language_of(path, text), text)}
    here = {path: text for path, text in rest.items() if language_of(path, text) in _HERE}
    there = {path: text for path, text in rest.items() if path not in here}
    found = await off_loop(lambda: {path: _fault(path, text) for path, text in here.items()})
    if there:
        found |= await _elsewhere(there, min(seconds, MOST_SECONDS))
    faults = {path: void.get(path) or found.get(path) or "" for path in files}
    return Parsed(faults={path: fault for path, fault in faults.items() if fault}, tried=frozenset({*void, *found}))


def language_of(path: str, text: str) -> str:
    return language(path, text[:200])


def _is_void(path: str, text: str) -> bool:
    """A file that says nothing, though its name promises something."""
    if path.endswith(_MAY_BE_EMPTY):
        return False
    if language_of(path, text) == "python":
        return all(not line.strip() or line.lstrip().startswith("#") for line in text.split("\n"))
    return not text.strip()


def _fault(path: str, text: str) -> str:
    wrong = fault_in(path, language_of(path, text), text)
    return f"line {wrong[0]}: {wrong[1]}" if wrong is not None else ""


async def _elsewhere(files: Mapping[str, str], seconds: float) -> dict[str, str]:
    """As far as it came in that time."""
    job = json.dumps({"path": sys.path, "files": files}).encode()
    pipes: dict[str, Any] = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.DEVNULL}
    try:
        process = await asyncio.create_subprocess_exec(sys.executable, "-I", "-c", _PROGRAM, **pipes, env={}, cwd="/", limit=1 << 20)
    except OSError:
        return {}
    told: dict[str, str] = {}
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with suppress(TimeoutError, OSError, ValueError):
            async with asyncio.timeout(seconds):
                process.stdin.write(job)
                await process.stdin.drain()
                process.stdin.close()
                async for line in process.stdout:
                    path, fault = json.loads(line)
                    told[path] = fault
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    return told


def tell(files: Mapping[str, str]) -> None:
    """In the process of its own: a line for each file as soon as it is known. Ends itself, should nobody else do it."""
    signal.alarm(MOST_SECONDS + 1)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for path in sorted(files, key=lambda path: len(files[path])):
        print(json.dumps([path, _fault(path, files[path])]), flush=True)
