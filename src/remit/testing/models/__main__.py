"""`python -m remit.testing.models SCRIPT.py [PORT]`: run the scripted model server by hand.

The file sets `script`; each request is printed.
"""

import asyncio
import runpy
import sys

from remit.testing.models import ModelRequest, ScriptedModels

_USAGE = "usage: python -m remit.testing.models SCRIPT.py [PORT]\nSCRIPT.py sets script: a list of turns, a dict of lists, or a function."


async def serve(path: str, port: int) -> None:
    script = runpy.run_path(path).get("script")
    if script is None:
        raise SystemExit(f"{path} sets no script.\n{_USAGE}")
    seen = 0
    async with ScriptedModels(script, port=port) as models:
        print(f"ANTHROPIC_BASE_URL={models.base_url}\nOPENAI_BASE_URL={models.openai_url}", flush=True)
        while True:
            await models.wait_asked(seen + 1, timeout=10**9)
            for request in models.requests[seen:]:
                print(_line(request), flush=True)
            seen = len(models.requests)


def _line(request: ModelRequest) -> str:
    asked = " ".join(request.last.text.split())
    return f"{request.number} {request.api} {request.model} turn {request.turn}, {len(request.tools)} tools: {asked[:160]}"


def main() -> None:
    if len(sys.argv) not in (2, 3):
        raise SystemExit(_USAGE)
    try:
        asyncio.run(serve(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 0))
    except KeyboardInterrupt:
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
