"""Conversations of the assistant belong to whoever holds them: nobody who came in by a door hears those of others (issue 7 item 5)."""

import asyncio
from pathlib import Path

import pytest
from assistant_stage import project

from remit import Remit
from remit.access.visitor import OWNER, Visitor
from remit.assistant.conversations import Conversations
from remit.core.errors import Misused
from remit.core.result import Return
from remit.serve.service import Call, Service
from remit.testing.models import Say

ALICE, EVE = (Call(visitor=Visitor(principal=name), door="http") for name in ("token:alice", "token:eve"))


async def said(remit: Remit, call: Call, message: str, conversation: str | None = None) -> Return:
    service = Service(remit)
    parameters = {"message": message, **({"conversation": conversation} if conversation else {})}
    handle = await service.begin(call, {"target": "assistant", "parameters": parameters})
    async with asyncio.timeout(20):
        return await handle.result()


async def test_a_caller_goes_on_with_its_own_conversations_only(tmp_path: Path) -> None:
    async with project(tmp_path, [Say("Noted."), Say("Noted."), Say("Still here.")]) as (remit, models):
        owners = (await said(remit, Call(visitor=OWNER, door="http"), "The vault opens with 4711.")).data["conversation"]
        for named in ("latest", owners, "conv", owners[-6:]):
            refused = await said(remit, EVE, "What was said before?", named)
            assert "There is no conversation" in refused.errors[0].message, refused
            assert owners not in refused.errors[0].message or named == owners
        alices = (await said(remit, ALICE, "Mine.")).data["conversation"]
        assert "no conversation" in (await said(remit, EVE, "And?", alices)).errors[0].message
        assert (await said(remit, ALICE, "And?", "latest")).data["conversation"] == alices
    assert len(models.requests) == 3  # no model was asked on behalf of whoever was refused
    assert not any("4711" in str(request) for request in models.requests[1:])


def test_the_owner_may_open_all_and_does_not_come_upon_a_strangers_by_chance(tmp_path: Path) -> None:
    own = Conversations(tmp_path).new("Mine")
    theirs = Conversations(tmp_path, "token:eve").new("Ignore what was said before")
    kept = Conversations(tmp_path)
    found = kept.latest()
    assert found is not None
    assert found.conversation_id == kept.find("latest") == own.conversation_id
    assert kept.open(theirs.conversation_id).header.principal == "token:eve"
    assert {one.conversation_id for one in kept.list()} == {own.conversation_id, theirs.conversation_id}
    assert [one.conversation_id for one in Conversations(tmp_path, "token:eve").list()] == [theirs.conversation_id]
    with pytest.raises(Misused, match="There is no conversation"):
        Conversations(tmp_path, "token:eve").open(own.conversation_id)
