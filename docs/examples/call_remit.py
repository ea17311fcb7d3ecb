"""A program that has work done by a remit elsewhere: `remit serve` in one folder, `WorkerDelegation` anywhere."""

import asyncio
import sys
from pathlib import Path

from remit.client import WorkerDelegation, discover


async def main() -> None:
    command = [sys.executable, "-m", "remit", "serve", "--door", "grpc", "--json", "--root", "."]
    server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert server.stdout is not None
    await server.stdout.readuntil(b"\n}\n")  # it says where it listens; `discover` knows too, on the same machine
    try:
        found = discover(".")
        print(Path(found.address.removeprefix("unix:")).name, found.token)
        async with WorkerDelegation(found.address, {"defaultTimeout": 30_000}) as worker:
            written = await worker.delegate(
                {"target": "worker", "operation": "write_file", "parameters": {"path": "notes.txt", "content": "all is well"}},
                "a conversation of mine",
            )
            print(written.task_state, written.success)
            read = {"target": "worker", "operation": "read_file", "parameters": {"path": "notes.txt"}}
            async for chunk in worker.stream(read):
                if chunk.result is not None:
                    print(chunk.type, chunk.result.data["content"])
            missing = await worker.delegate({**read, "parameters": {"path": "nothing.txt"}, "timeout": 5000})
            assert missing.error is not None
            print(missing.task_state, missing.error.code)
    finally:
        server.terminate()
        await server.wait()


if __name__ == "__main__":
    asyncio.run(main())
