"""`results.read`: the whole result of a delegation, by ranges of characters (S5.8); `results.summarise`: a large one in few words, by a
model (S7); and what the assistant is shown of results.

Only of what the caller delegated, and what those delegated in turn; for the assistant also of what its conversation delegated before.
Anybody else's are refused. Reads the record, so what was struck out there stays struck out.
"""

from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field

from remit.agents.function import FunctionAgent, agent
from remit.core.errors import Failed, Misused, Refused
from remit.core.ids import is_session_id
from remit.core.record import Record
from remit.flow.context import Context
from remit.models.optional import Writes
from remit.models.summarising import summarised
from remit.tool.result import DelegateResult, result_of_record
from remit.tool.shortening import READ, SUMMARISE, shortened, text_of

TARGET = "results"
MOST_CHARACTERS = 100_000
"""Of one range."""
DEFAULT_CHARACTERS = 20_000
SUMMARY_CHARACTERS = 3_000
LEAST_SUMMARY = 300
_HEAD_CHARACTERS = 200
Part = Literal["data", "output", "artifacts", "all"]


class Records(Protocol):
    """Where delegations are looked up: an open `Remit`."""

    async def describe(self, session_id: str) -> Record: ...


def reading_agent(records: Records, turns: Callable[[str], frozenset[str]]) -> FunctionAgent:
    """`turns`: all delegations of the assistant in the conversation that is answered by this one of them; of any other none."""

    @agent(READ, description="The whole result of an earlier delegation, by ranges of characters.", workspace="none", effects=("read",))
    async def read(
        ctx: Context,
        task_id: str,
        offset: Annotated[int, Field(ge=0)] = 0,
        limit: Annotated[int, Field(ge=1, le=MOST_CHARACTERS)] = DEFAULT_CHARACTERS,
        part: Part = "data",
    ) -> dict[str, Any]:
        return ranged(await _own_result(records, turns, ctx, task_id), part, offset, limit)

    return read


def summarising_agent(records: Records, turns: Callable[[str], frozenset[str]], models: Writes) -> FunctionAgent:
    """Beside `reading_agent`: for results that are too large to be read range by range."""

    @agent(SUMMARISE, description="A large result of an earlier delegation in few words, by a language model.", workspace="none")
    async def summarise(
        ctx: Context,
        task_id: str,
        characters: Annotated[int, Field(ge=LEAST_SUMMARY, le=DEFAULT_CHARACTERS)] = SUMMARY_CHARACTERS,
        part: Part = "data",
        about: str = "",
    ) -> dict[str, Any]:
        text = _text_of_part(await _own_result(records, turns, ctx, task_id), part)
        short = await summarised(models, ctx, text, characters=characters, about=about)
        return {"taskId": task_id, "part": part, "text": short, "total": len(text), "isWhole": short == text}

    return summarise


async def _own_result(records: Records, turns: Callable[[str], frozenset[str]], ctx: Context, task_id: str) -> DelegateResult:
    """Of a delegation that the caller may look into, and that has ended."""
    record = await _known(records, task_id)
    callers = await _callers(records, ctx.as_dict()["parent_id"])
    if not await _is_below(records, record, callers.union(*map(turns, callers))):
        raise _not_yours(task_id)
    if record.result is None:
        raise Failed(f"{task_id} has not ended: it is {record.state}.", code="INVALID_OPERATION", advice="Read it when it has.")
    return result_of_record(record)


def ranged(result: DelegateResult, part: str, offset: int, limit: int) -> dict[str, Any]:
    text = _text_of_part(result, part)
    end = min(len(text), offset + limit)
    return {
        "taskId": result.task_id,
        "part": part,
        "text": text[offset:end],
        "offset": offset,
        "total": len(text),
        "next": end if end < len(text) else None,
    }


def _text_of_part(result: DelegateResult, part: str) -> str:
    match part:
        case "data":
            return text_of(result.data)
        case "output":
            return text_of(result.output)
        case "artifacts":
            return text_of([artifact.to_dict() for artifact in result.artifacts])
        case _:
            return text_of(result.to_dict())


async def _known(records: Records, task_id: str) -> Record:
    """One that is unknown is refused in the same words as a stranger's: nobody is told which ids there are."""
    if not is_session_id(task_id):
        raise Refused(
            f"{task_id!r:.60} is no taskId: they look like sess_1760000000_abc123.",
            code="INVALID_PARAMETERS",
            advice="Take one from a result.",
        )
    try:
        return await records.describe(task_id)
    except Misused as error:
        if error.code == "INVALID_TARGET":
            raise _not_yours(task_id) from None
        raise


async def _callers(records: Records, caller: str | None) -> set[str]:
    """Whoever asks, and those whose work it goes on with (`resume`): what they delegated is known to it."""
    found: set[str] = set()
    while caller is not None and caller not in found:
        found.add(caller)
        try:
            caller = (await records.describe(caller)).resumes
        except Misused:
            break
    return found


async def _is_below(records: Records, record: Record, callers: Collection[str]) -> bool:
    """Whether one of them delegated it, or had it delegated. Callers are kept as long as what they delegated; depth is limited."""
    above = record.parent_id
    while above is not None:
        if above in callers:
            return True
        try:
            above = (await records.describe(above)).parent_id
        except Misused:
            return False
    return False


def _not_yours(task_id: str) -> Refused:
    return Refused(
        f"{task_id} is no delegation of yours: neither you nor anybody you delegated to made it.",
        code="POLICY_DENIED",
        advice="Read results of delegations that were made here, by the taskId in their results.",
    )


def shown_to_model(result: DelegateResult, characters: int) -> str:
    """What the assistant sees: shortened; of a range that it asked for, the text as it stands, as much of it as there is room for."""
    if result.metadata.agent_id == READ and result.success and isinstance(result.data, dict) and characters > 2 * _HEAD_CHARACTERS:
        return _range_shown(result.data, characters)
    return shortened(result, characters)


def _range_shown(data: dict[str, Any], characters: int) -> str:
    text, offset, total = str(data.get("text", "")), int(data.get("offset", 0)), int(data.get("total", 0))
    kept = text[: characters - _HEAD_CHARACTERS]
    end = offset + len(kept)
    after = f"; next offset {end}" if end < total else "; this is the end"
    return f"[{data.get('taskId')}, {data.get('part')}: characters {offset} to {end} of {total}{after}]\n{kept}"
