"""The caller's half: accept, guard, and hand over to the engine. Every door and every agent delegates through here.

Read this, then `perform`: together they are the story of a delegation.
"""

from remit.core.origin import Origin
from remit.core.result import Return
from remit.flow.accept import accept
from remit.flow.context import Handle
from remit.flow.house import Caller, Engine, House
from remit.flow.request import Request


async def delegate(request: Request, caller: Caller | None, house: House, engine: Engine, origin: Origin | None = None) -> Return:
    """The return of the delegation that `request` asks for: refused by a guard, or run by the engine."""
    order = accept(request, caller, house, origin)
    if order.refusal is not None:
        return await engine.refuse(order)
    return await engine.run(order)


async def start(request: Request, caller: Caller | None, house: House, engine: Engine, origin: Origin | None = None) -> Handle:
    """Like `delegate`, for callers that go on meanwhile."""
    order = accept(request, caller, house, origin)
    return await engine.start(order)
