"""A program that has work done by a remit elsewhere: `remit serve` in one folder, `Client` anywhere."""

import asyncio
import sys

from remit import Client, discover


async def main() -> None:
    command = [sys.executable, "-m", "remit", "serve", "--api", "http", "--http", "127.0.0.1:0", "--json", "--root", "."]
    server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert server.stdout is not None
    await server.stdout.readuntil(b"\n}\n")  # it says where it listens; `discover` knows too, on the same machine
    try:
        found = discover(".")
        async with Client(found.address, token=found.token) as client:
            note = {"path": "notes.txt", "content": "all is well"}
            written = await client.delegate("worker", "write_file", note, session_id="a conversation of mine")
            print(written.task_state, written.success)
            async for chunk in client.stream("worker", "read_file", {"path": "notes.txt"}):
                if chunk.result is not None:
                    print(chunk.type, chunk.result.data["content"])
            missing = await client.delegate("worker", "read_file", {"path": "nothing.txt"}, timeout=5000)
            assert missing.error is not None
            print(missing.task_state, missing.error.code)
    finally:
        server.terminate()
        await server.wait()


if __name__ == "__main__":
    asyncio.run(main())
