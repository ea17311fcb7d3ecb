"""External callers as principals of the policy and the audit log; delegation tokens."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from remit import Context, Remit, RemitError, Return, agent
from support.audit import audit_log
from support.clocks import ManualClock
from support.server import OWNER, Authenticator, Call, Credentials, Grants, Principal, Service

RULES = """
@id("agents-may-work")
permit (principal, action, resource);
@id("ci-only-hosts")
@because("{caller} may not have {action}.")
forbid (principal == Caller::"token:ci", action == Action::"leaf", resource);
@id("not-for-guests")
@because("Not on behalf of {on_behalf}.")
forbid (principal is Agent, action == Action::"leaf", resource) when { context.on_behalf == "token:guest" };
"""


@agent
async def leaf(ctx: Context, word: str = "") -> str:
    return f"leaf {word}"


@agent
async def host(ctx: Context) -> str:
    result = await ctx.delegate("leaf")
    return result.errors[0].message if result.errors else "it may"


class Harness:
    """A project with a service behind one authenticator, and an agent that waits for a signal to end."""

    def __init__(self, remit: Remit, far: "WaitingAgent") -> None:
        self.remit, self.far = remit, far
        self.service = Service(remit)
        self.authenticator = Authenticator(remit.folder, running=remit.engine.find, audit=remit.note_access)

    def principal(self, name: str, **grants: Any) -> Principal:
        return self.authenticator.authenticate(bearer(self.authenticator.tokens.new(name, Grants(**grants))[1]))

    async def ask(self, principal: Principal, name: str, **parameters: Any) -> Return:
        handle = await self.service.begin(Call(principal=principal, api="http"), {"target": name, "parameters": parameters})
        return await handle.result()

    async def running(self) -> Any:
        """A running delegation of `far`, as the engine knows it."""
        handle = await self.remit.start("far", timeout=30)
        await asyncio.wait_for(self.far.is_there.wait(), 60)
        return self.remit.engine.live()[handle.session_id]


class WaitingAgent:
    def __init__(self) -> None:
        self.is_there, self.may_end = asyncio.Event(), asyncio.Event()


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    waiting = WaitingAgent()

    @agent
    async def far(ctx: Context) -> str:
        waiting.is_there.set()
        await waiting.may_end.wait()
        return "done"

    async with Remit.open(tmp_path, agents=[leaf, host, far], policy=RULES) as remit:
        yield Harness(remit, waiting)


def bearer(token: str | None) -> Credentials:
    return Credentials(authorization=f"Bearer {token}")


def code_of(call: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    with pytest.raises(RemitError) as found:
        call(*arguments, **named)
    return found.value.code


def why(harness: Harness) -> str:
    """The latest refusal in the audit log."""
    return str([entry for entry in audit_log(harness.remit.root) if entry["event"] == "turned_away"][-1]["because"])


async def test_external_caller_is_a_principal_of_its_kind(harness: Harness) -> None:
    refused = await harness.ask(harness.principal("ci"), "leaf")
    assert refused.errors[0].code == "POLICY_DENIED"
    assert "token:ci may not have leaf" in refused.errors[0].message
    assert (await harness.ask(harness.principal("other"), "leaf")).status == "completed"
    assert (await harness.ask(OWNER, "leaf")).status == "completed"
    log = [entry for entry in audit_log(harness.remit.root) if entry.get("action") == "leaf"]
    assert [(entry["caller"], entry["verdict"]) for entry in log] == [
        ("token:ci", "deny"),
        ("token:other", "allow"),
        ("orchestrator", "allow"),
    ]


async def test_rules_see_the_principal_of_the_whole_tree(harness: Harness) -> None:
    """The principal of a child is its agent; cached decisions do not mix trees."""
    ci, guest = harness.principal("ci"), harness.principal("guest")
    for _ in range(2):
        assert (await harness.remit.delegate("host")).summary.startswith("it may")
        assert (await harness.ask(ci, "host")).summary.startswith("it may")
        assert "Not on behalf of token:guest" in (await harness.ask(guest, "host")).summary
    below = [entry for entry in audit_log(harness.remit.root) if entry.get("caller") == "host"]
    output = {(entry.get("on_behalf"), entry["verdict"]) for entry in below}
    assert output == {(None, "allow"), ("token:ci", "allow"), ("token:guest", "deny")}


async def test_delegation_token_expires_with_its_attempt_and_delegation(harness: Harness) -> None:
    """After the delegation ends, its token and streams opened with it are worthless."""
    running = await harness.running()
    earlier = harness.authenticator.token_for(running)
    running.attempt += 1
    assert code_of(harness.authenticator.authenticate, bearer(earlier)) == "UNAUTHENTICATED"
    assert "attempt" in why(harness)
    token = harness.authenticator.token_for(running)
    principal = harness.authenticator.authenticate(Credentials(authorization=f"Bearer {token}"))
    assert harness.authenticator.is_valid(principal)
    harness.far.may_end.set()
    await harness.remit.result(running.delegation.session_id)
    assert code_of(harness.authenticator.authenticate, bearer(token)) == "UNAUTHENTICATED"
    assert "has ended" in why(harness)
    assert not harness.authenticator.is_valid(principal)
    assert code_of(harness.authenticator.token_for, running) == "CALLER_REFUSED"
    with pytest.raises(RemitError) as found:  # accepted a moment before it ended
        await harness.service.begin(Call(principal=principal, api="grpc"), {"target": "leaf", "parameters": {}})
    assert found.value.code == "CALLER_REFUSED"


async def test_forged_foreign_and_expired_tokens_are_refused(harness: Harness, tmp_path: Path) -> None:
    running = await harness.running()
    token = harness.authenticator.token_for(running)
    other_address = Authenticator(tmp_path / "other", running=harness.remit.engine.find)
    for wrong in (token[:-1], f"{token}A", other_address.token_for(running), "rmd_"):
        assert code_of(harness.authenticator.authenticate, bearer(wrong)) == "UNAUTHENTICATED"
        assert "unknown" in why(harness)
    assert harness.authenticator.authenticate(Credentials(authorization=f"Bearer {token}")).parent == running.delegation.session_id
    clock = ManualClock(wall=running.delegation.deadline_wall + 1).as_clock()
    later = Authenticator(
        harness.remit.folder,
        running=harness.remit.engine.find,
        audit=harness.remit.note_access,
        clock=clock,
    )
    assert code_of(later.authenticate, bearer(later.token_for(running))) == "UNAUTHENTICATED"
    assert "expired" in why(harness)


async def test_delegation_token_is_redacted_from_agent_output(harness: Harness) -> None:
    token = harness.authenticator.token_for(await harness.running())
    result = await harness.remit.delegate("leaf", word=token)
    assert token not in str(result)
    assert all(token.encode() not in path.read_bytes() for path in harness.remit.folder.rglob("*") if path.is_file())
