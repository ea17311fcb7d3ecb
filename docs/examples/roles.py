"""Who does what: a role by the built-in, one that nobody can carry out, and the same one bound to a command."""

import asyncio
from pathlib import Path

from remit import Remit

TASK = {
    "task_number": 7,
    "title": "Serve tea",
    "description": "1. Heat the water to 80 °C\n2. Brew for two minutes\n3. Write down in README.md how it is done",
}
CLERK = {
    "agents": {"clerk": {"command": ["tr", "a-z", "A-Z"], "answers": "value"}},
    "roles": {"implementer": "clerk"},
}


async def main() -> None:
    async with Remit.open(".") as remit:
        planned = await remit.delegate("/plan", task=TASK, parameters={"task": "Plan task 7", "write_to": "specs/007_serve_tea/plan.md"})
        print(planned.status, planned.artifacts[0].path, planned.data["phases"])
        done = await remit.delegate("/implement", task=TASK, parameters={"task": "Implement task 7"})
        print(done.status, done.errors[0].code)
        print(done.next_steps.splitlines()[2].strip())

    async with Remit.open(".", settings=CLERK) as remit:
        done = await remit.delegate("/implement", task=TASK, parameters={"task": "Implement task 7"})
        print(done.status, done.metadata.agent_type, done.data.splitlines()[-1])


if __name__ == "__main__":
    Path("README.md").write_text("# Tea\n")
    asyncio.run(main())
