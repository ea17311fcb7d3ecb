"""Tools of a foreign MCP server as agents: mcp-server-time, from PyPI."""

import asyncio
import sys
from pathlib import Path

from remit import Remit

SERVER = str(Path(sys.executable).with_name("mcp-server-time"))


async def main() -> None:
    settings = {"agents": {"clock": {"mcp": {"command": [SERVER]}, "tools": ["convert_time"], "timeout": 60}}}
    async with Remit.open(settings=settings) as remit:
        for spec in remit.directory.specs():
            if spec.kind == "mcp":
                print(spec.name, "takes", ", ".join(spec.parameters_schema["required"]))
        asked = {"source_timezone": "Asia/Kolkata", "time": "16:30", "target_timezone": "Asia/Tokyo"}
        result = await remit.delegate("clock.convert_time", parameters=asked)
        print(result.status, result.data["time_difference"])
        refused = await remit.delegate("clock.convert_time", parameters={"time": "16:30"})
        print(refused.errors[0].code)


asyncio.run(main())
