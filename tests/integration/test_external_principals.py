"""Callers from outside: the principal of the policy and of the audit log; and tokens of delegations at work."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from remit import Context, Remit, Return, agent
from remit.core.delegation import CallerInfo, Origin
from remit.core.errors import RemitError
from remit.core.policy import ALLOW_ALL, Verdict
from remit.core.request import call
from remit.policy.audit import check_log, entries
from remit.runtime.accept import accept
from remit.runtime.authorize import pending_after_restart
from remit.server.authenticator import Authenticator, Credentials
from remit.server.service import Call, Service
from remit.server.tokens import OWNER, Grants, Principal
from remit.testing.clock import ManualClock

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


class Stage:
    """A project with a service behind one authenticator, and an agent that waits until it is told to end."""

    def __init__(self, remit: Remit, far: "Far") -> None:
        self.remit, self.far = remit, far
        self.service = Service(remit)
        self.authenticator = Authenticator(remit.folder, remit.settings.serve, running=remit.engine.find, audit=remit.note_access)

    def principal(self, name: str, **grants: Any) -> Principal:
        return self.authenticator.authenticate(bearer(self.authenticator.tokens.new(name, Grants(**grants))[1]))

    async def ask(self, principal: Principal, name: str, **parameters: Any) -> Return:
        handle = await self.service.begin(Call(principal=principal, api="http"), {"target": name, "parameters": parameters})
        return await handle.result()

    async def running(self) -> Any:
        """A delegation of `far` that runs, as the engine knows it."""
        handle = await self.remit.start("far", timeout=30)
        await asyncio.wait_for(self.far.is_there.wait(), 10)
        return self.remit.engine.live()[handle.session_id]


class Far:
    def __init__(self) -> None:
        self.is_there, self.may_end = asyncio.Event(), asyncio.Event()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    told = Far()

    @agent
    async def far(ctx: Context) -> str:
        told.is_there.set()
        await told.may_end.wait()
        return "done"

    async with Remit.open(tmp_path, agents=[leaf, host, far], policy=RULES) as remit:
        yield Stage(remit, told)


def bearer(token: str | None) -> Credentials:
    return Credentials(authorization=f"Bearer {token}")


def code_of(call: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    with pytest.raises(RemitError) as found:
        call(*arguments, **named)
    return found.value.code


def why(stage: Stage) -> str:
    """What the audit log says of who was turned away last."""
    return str([entry for entry in entries(stage.remit.folder) if entry["event"] == "turned_away"][-1]["because"])


async def test_external_caller_is_a_principal_of_its_kind(stage: Stage) -> None:
    refused = await stage.ask(stage.principal("ci"), "leaf")
    assert refused.errors[0].code == "POLICY_DENIED"
    assert "token:ci may not have leaf" in refused.errors[0].message
    assert (await stage.ask(stage.principal("other"), "leaf")).status == "completed"
    assert (await stage.ask(OWNER, "leaf")).status == "completed"
    log = [entry for entry in entries(stage.remit.folder) if entry.get("action") == "leaf"]
    assert [(entry["caller"], entry["verdict"]) for entry in log] == [
        ("token:ci", "deny"),
        ("token:other", "allow"),
        ("orchestrator", "allow"),
    ]
    assert not check_log(stage.remit.folder).findings


async def test_rules_see_the_principal_of_the_whole_tree(stage: Stage) -> None:
    """The child's principal is its agent, as ever; the quick way of decisions made before mixes up no two trees."""
    ci, guest = stage.principal("ci"), stage.principal("guest")
    for _ in range(2):
        assert (await stage.remit.delegate("host")).summary.startswith("it may")
        assert (await stage.ask(ci, "host")).summary.startswith("it may")
        assert "Not on behalf of token:guest" in (await stage.ask(guest, "host")).summary
    below = [entry for entry in entries(stage.remit.folder) if entry.get("caller") == "host"]
    said = {(entry.get("on_behalf"), entry["verdict"]) for entry in below}
    assert said == {(None, "allow"), ("token:ci", "allow"), ("token:guest", "deny")}


async def test_recovered_delegation_is_authorized_as_its_original_principal(stage: Stage) -> None:
    """Not as the owner, to whom more is permitted."""
    deps = stage.remit._deps
    caller_info = Origin(caller_info=CallerInfo("token:ci", "http"), path=("token:ci",))
    order = accept(call("leaf"), None, dataclasses.replace(deps, policy=ALLOW_ALL), caller_info)
    pending = pending_after_restart(order, None, deps)
    assert pending.decision.verdict is Verdict.DENY
    assert pending_after_restart(accept(call("leaf"), None, deps), None, deps) is None


async def test_refused_callers_are_audited_without_their_secret(stage: Stage) -> None:
    code_of(stage.authenticator.authenticate, Credentials(authorization="Bearer rmt_" + "7" * 49, api="grpc", peer="192.0.2.7"))
    entry = list(entries(stage.remit.folder))[-1]
    assert (entry["event"], entry["door"], entry["peer"], entry["because"]) == ("turned_away", "grpc", "192.0.2.7", "unknown token")
    assert "777777" not in (stage.remit.folder / "audit.jsonl").read_text()
    assert not check_log(stage.remit.folder).findings


async def test_request_with_a_delegation_token_is_a_child(stage: Stage) -> None:
    running = await stage.running()
    principal = stage.authenticator.authenticate(Credentials(authorization=f"Bearer {stage.authenticator.token_for(running)}"))
    assert principal.parent == running.delegation.session_id
    assert not principal.is_local
    handle = await stage.service.begin(Call(principal=principal, api="grpc"), {"target": "leaf", "parameters": {}})
    assert (await handle.result()).status == "completed"
    record = await stage.remit.describe(handle.session_id)
    assert (record.parent_id, record.depth, record.path) == (running.delegation.session_id, 2, ("orchestrator", "far", "leaf"))
    assert running.budget.delegations == 2


async def test_delegation_token_expires_with_its_attempt_and_delegation(stage: Stage) -> None:
    """Replayed after the end, it is worth nothing; nor is a stream that was opened with it."""
    running = await stage.running()
    earlier = stage.authenticator.token_for(running)
    running.attempt += 1
    assert code_of(stage.authenticator.authenticate, bearer(earlier)) == "UNAUTHENTICATED"
    assert "attempt" in why(stage)
    token = stage.authenticator.token_for(running)
    principal = stage.authenticator.authenticate(Credentials(authorization=f"Bearer {token}"))
    assert stage.authenticator.is_valid(principal)
    stage.far.may_end.set()
    await stage.remit.result(running.delegation.session_id)
    assert code_of(stage.authenticator.authenticate, bearer(token)) == "UNAUTHENTICATED"
    assert "has ended" in why(stage)
    assert not stage.authenticator.is_valid(principal)
    assert code_of(stage.authenticator.token_for, running) == "CALLER_REFUSED"
    with pytest.raises(RemitError) as found:  # let in a moment before it ended
        await stage.service.begin(Call(principal=principal, api="grpc"), {"target": "leaf", "parameters": {}})
    assert found.value.code == "CALLER_REFUSED"


async def test_delegation_token_is_valid_for_its_holder_only(stage: Stage) -> None:
    running = await stage.running()
    token = stage.authenticator.token_for(running, holder="token:box")
    box, thief = (f"Bearer {stage.authenticator.tokens.new(name, Grants())[1]}" for name in ("box", "thief"))
    principal = stage.authenticator.authenticate(Credentials(authorization=box, delegation=token))
    assert principal.parent == running.delegation.session_id
    for shown in ({"authorization": thief}, {"is_socket": True}, {}):
        assert code_of(stage.authenticator.authenticate, Credentials(delegation=token, **shown)) == "UNAUTHENTICATED"
        assert "another principal" in why(stage) or not shown
    assert code_of(stage.authenticator.authenticate, Credentials(authorization=f"Bearer {token}")) == "UNAUTHENTICATED"
    stage.authenticator.tokens.revoke("box")
    assert not stage.authenticator.is_valid(principal), "whose own token was revoked holds none of others"
    assert code_of(stage.authenticator.authenticate, Credentials(authorization=box, delegation=token)) == "UNAUTHENTICATED"


async def test_forged_foreign_and_expired_tokens_are_refused(stage: Stage, tmp_path: Path) -> None:
    running = await stage.running()
    token = stage.authenticator.token_for(running)
    elsewhere = Authenticator(tmp_path / "other", stage.remit.settings.serve, running=stage.remit.engine.find)
    for wrong in (token[:-1], f"{token}A", elsewhere.token_for(running), "rmd_"):
        assert code_of(stage.authenticator.authenticate, bearer(wrong)) == "UNAUTHENTICATED"
        assert "unknown" in why(stage)
    assert stage.authenticator.authenticate(Credentials(authorization=f"Bearer {token}")).parent == running.delegation.session_id
    clock = ManualClock(wall=running.delegation.deadline_wall + 1).as_clock()
    later = Authenticator(
        stage.remit.folder,
        stage.remit.settings.serve,
        running=stage.remit.engine.find,
        audit=stage.remit.note_access,
        clock=clock,
    )
    assert code_of(later.authenticate, bearer(later.token_for(running))) == "UNAUTHENTICATED"
    assert "expired" in why(stage)


async def test_delegation_token_is_redacted_from_agent_output(stage: Stage) -> None:
    token = stage.authenticator.token_for(await stage.running())
    result = await stage.remit.delegate("leaf", word=token)
    assert token not in str(result)
    assert all(token.encode() not in path.read_bytes() for path in stage.remit.folder.rglob("*") if path.is_file())
