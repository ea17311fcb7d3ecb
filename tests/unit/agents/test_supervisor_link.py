"""The link to a supervisor keeps the last report."""

import asyncio
import socket

from remit.agents.process.worker_client import SupervisorLink
from remit.system.frames import encode_frame


async def test_report_is_read_although_an_order_can_no_longer_be_delivered() -> None:
    ours, theirs = socket.socketpair()
    link = SupervisorLink()
    await link.connect(ours)
    with theirs:
        theirs.sendall(encode_frame({"exit": 3}))
    link.order_stop(0.0)
    await asyncio.wait_for(link.lost, 10)
    assert link.report == {"exit": 3}
    link.close()
