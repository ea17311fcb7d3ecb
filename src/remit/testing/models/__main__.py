"""`python -m remit.testing.models SCRIPT.py [PORT]`: run the scripted model server by hand.

The file sets `script`; each request is printed.
"""

import asyncio
import runpy
import sys
from typing import TYPE_CHECKING

from remit.testing.models.request import ModelRequest
from remit.testing.models.turns import Script, fault_of

if TYPE_CHECKING:
    from remit.testing.models import ScriptedModels

_USAGE = "usage: python -m remit.testing.models SCRIPT.py [PORT]\nSCRIPT.py sets script: a list of turns, a dict of lists, or a function."


async def serve(models: "ScriptedModels") -> None:
    seen = 0
    async with models:
        print(f"ANTHROPIC_BASE_URL={models.base_url}\nOPENAI_BASE_URL={models.openai_url}", flush=True)
        while True:
            await models.wait_asked(seen + 1, timeout=10**9)
            for request in models.requests[seen:]:
                print(_line(request), flush=True)
            seen = len(models.requests)


def _line(request: ModelRequest) -> str:
    asked = " ".join(request.asked.split())
    return f"{request.number} {request.api} {request.model} turn {request.turn}, {len(request.tools)} tools: {asked[:160]}"


def _script_in(path: str) -> Script:
    """What the file sets. What its own code raises comes out as it is: with the line that is to be mended."""
    try:
        open(path, "rb").close()
    except OSError as error:
        raise SystemExit(f"{path} cannot be read: {error.strerror or error}.\n{_USAGE}") from None
    script: Script | None = runpy.run_path(path).get("script")
    if script is None:
        raise SystemExit(f"{path} sets no script.\n{_USAGE}")
    if fault := fault_of(script):
        raise SystemExit(f"{path}: script: {fault}.\n{_USAGE}")
    return script


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise SystemExit(f"{text!r} is no port: write a number from 0 (any that is free) to 65535.")
    return int(text)


def main() -> None:
    if len(sys.argv) not in (2, 3):
        raise SystemExit(_USAGE)
    port = _port(sys.argv[2]) if len(sys.argv) == 3 else 0
    try:
        from remit.testing.models import ScriptedModels
    except ModuleNotFoundError as error:
        if error.name != "h11":
            raise
        raise SystemExit(str(error)) from None
    models = ScriptedModels(_script_in(sys.argv[1]), port=port)
    try:
        asyncio.run(serve(models))
    except OSError as error:
        raise SystemExit(f"Port {port} cannot be listened on: {error.strerror or error}.") from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
