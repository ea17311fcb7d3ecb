"""A store of one's own, here one that counts; proved by the suite that every store must pass."""

import asyncio
from collections.abc import Sequence

from remit import MemoryStore, Remit, Write, WriteResult, agent
from remit.testing import STORE_CHECKS


class CountingStore(MemoryStore):
    """Everything as in memory, and how many groups were written."""

    groups = 0

    def apply(self, writes: Sequence[Write]) -> WriteResult:
        self.groups += 1
        return super().apply(writes)

    def try_apply(self, writes: Sequence[Write]) -> WriteResult | None:
        return self.apply(writes)


@agent("hello")
async def hello() -> str:
    return "Hello."


async def main() -> None:
    for check in STORE_CHECKS:
        first = CountingStore()
        check(lambda first=first: CountingStore(beside=first))
    store = CountingStore()
    async with Remit.open(".", agents=[hello], store=store) as remit:
        await remit.delegate("hello")
    print(len(STORE_CHECKS) > 10, store.groups > 0)


if __name__ == "__main__":
    asyncio.run(main())
