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
    from remit.testing import ScriptedModels

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


def main() -> None:
    path, port, *more = [*sys.argv[1:], "0"] if len(sys.argv) == 2 else [*sys.argv[1:], "", ""]
    if not port.isdecimal() or any(more):
        raise SystemExit(_USAGE)
    try:
        from remit.testing import ScriptedModels

        script: Script | None = runpy.run_path(path).get("script")  # what its own code raises comes out as it is
        if fault := "it is not set" if script is None else fault_of(script):
            raise SystemExit(f"{path}: script: {fault}.\n{_USAGE}")
        assert script is not None
        asyncio.run(serve(ScriptedModels(script, port=int(port))))
    except (ModuleNotFoundError, OSError) as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
