"""Readers that leave and resume see each event once, in order, and at the end the result of the call."""

import asyncio
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st

from remit import Chunk, Context, Event, Remit, agent
from support.server import Call, Principal, Service

ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(1, 5)),
        st.tuples(st.just("read"), st.integers(1, 6)),
        st.tuples(st.just("leave"), st.just(0)),
        st.tuples(st.just("breathe"), st.just(0)),
    ),
    max_size=14,
)
"""Actions of a delegation and of a reader that leaves and resumes its stream, in this or another process."""


class Reader:
    """Reads some events, leaves, and resumes after the last number."""

    def __init__(self, remit: Remit, session_id: str) -> None:
        self.remit, self.session_id = remit, session_id
        self.seen: list[Event] = []
        self.stream = remit.follow(session_id)

    async def read(self, count: int) -> None:
        """Read at most `count` of the available events."""
        for _ in range(count):
            try:
                self.seen.append(await asyncio.wait_for(asyncio.shield(coming := asyncio.ensure_future(anext(self.stream))), 0.01))
            except TimeoutError:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
                await self.leave()
                return
            except StopAsyncIteration:
                return

    async def leave(self) -> None:
        await self.stream.aclose()
        self.stream = self.remit.follow(self.session_id, self.seen[-1].number if self.seen else 0)

    async def rest(self) -> None:
        await self.leave()
        self.seen += [event async for event in self.stream if not self.seen or event.number > self.seen[-1].number]


async def _follow(acts: list[tuple[str, int]], in_other_process: bool) -> None:
    words: asyncio.Queue[int] = asyncio.Queue()

    @agent("talks", isolation="inline", timeout=30)
    async def talks(ctx: Context) -> dict[str, int]:
        said = 0
        while count := await words.get():
            for _ in range(count):
                said += 1
                ctx.emit(said)
        return {"said": said}

    with tempfile.TemporaryDirectory() as folder:
        async with Remit.open(folder, agents=[talks]) as here, Remit.open(folder, agents=[talks]) as there:
            call = Call(principal=Principal(name="token:a"), api="grpc")
            service = Service(here)
            handle = await service.begin(call, {"target": "talks"})
            reader = Reader(there if in_other_process else here, handle.session_id)
            for act, count in acts:
                if act == "say":
                    words.put_nowait(count)
                elif act == "read":
                    await reader.read(count)
                elif act == "leave":
                    await reader.leave()
                else:
                    await asyncio.sleep(0)
            words.put_nowait(0)
            returned = await handle.result()
            await reader.rest()
            numbers = [event.number for event in reader.seen]
            total = sum(count for act, count in acts if act == "say")
            assert numbers == sorted(set(numbers))
            assert [event.body["chunk"] for event in reader.seen if event.kind == "data"] == list(range(1, total + 1))
            assert numbers == [event.number for event in await here.events(handle.session_id)] + [numbers[-1]]
            assert reader.seen[-1].body["result"] == returned.to_dict()
            await _same_through_the_service(service, call, handle.session_id, numbers[-1])


async def _same_through_the_service(service: Service, call: Call, task_id: str, last: int) -> None:
    async def chunks(after: int) -> list[Chunk]:
        return [chunk async for chunk in service.stream(call, task_id, after)]

    whole = await chunks(0)
    assert whole[-1].result == await service.look(call, task_id)
    for after in (whole[0].number, whole[len(whole) // 2].number, last):
        assert await chunks(after) == [chunk for chunk in whole if chunk.number > after or chunk is whole[-1]]


@settings(max_examples=12)
@given(acts=ACTS, in_other_process=st.booleans())
def test_resumed_streams_yield_each_event_once_in_order(acts: list[tuple[str, int]], in_other_process: bool) -> None:
    asyncio.run(_follow(acts, in_other_process))
