"""Policy enforcement: delegations, requests of running agents, modes, approval and the audit log."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from remit import BlockingContext, Context, Decision, PolicyRequest, Refused, Remit, State, StopReason, agent
from remit.testing import Scripted
from support.audit import DEFAULT_RULES, audit_log, audit_path

ran: list[str] = []
PERMIT = "permit (principal, action, resource);"


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@agent
async def digest(ctx: Context, level: int = 1) -> str:
    ran.append("digest")
    return "done"


@agent(effects=("delete",), acts_on={"path": "path"})
async def wipe(ctx: Context, path: str, recursive: bool = False) -> str:
    ran.append(f"wipe {path}")
    return "gone"


@agent(effects=("read",), acts_on={"paths": "path"})
async def read(ctx: Context, paths: list[str]) -> str:
    ran.append("read")
    return "read"


@agent
async def tidy(ctx: Context, path: str = "build") -> Any:
    return [(await ctx.delegate("wipe", path=path, recursive=True)).to_dict()]


@agent(effects=("network",))
async def fetch(ctx: Context, url: str) -> str:
    try:
        await ctx.permit(url=url)
    except Refused as no:
        ran.append("refused")
        return f"refused: {no.message}"
    return "fetched"


@agent(isolation="process", effects=("network",))
def far(ctx: BlockingContext, url: str) -> str:
    ctx.permit(url=url)
    return "fetched"


AGENTS = [digest, wipe, read, tidy, fetch, far]


class Approver:
    """An approver with a fixed answer, after a delay."""

    def __init__(self, answer: bool = True, after: float = 0.0) -> None:
        self.answer, self.after = answer, after
        self.asked: list[tuple[PolicyRequest, Decision, float]] = []
        self.is_asked = asyncio.Event()

    async def approve(self, asked: PolicyRequest, decision: Decision, seconds: float) -> tuple[bool, str]:
        self.asked.append((asked, decision, seconds))
        self.is_asked.set()
        await asyncio.sleep(self.after)
        return self.answer, "Ada"


async def test_forbidden_delegation_is_refused_with_the_rule(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=AGENTS) as remit:
        refused = await remit.delegate("wipe", path="../elsewhere")
        assert (refused.stop_reason, ran) == (StopReason.REFUSED, [])
        error = refused.errors[0]
        assert (error.type, error.code, error.recoverable) == ("permission", "POLICY_DENIED", False)
        assert "stay-inside" in error.message
        assert "orchestrator → wipe" in error.message
        assert error.recommendation
        assert (await remit.describe(refused.session_id)).state is State.REFUSED


@pytest.mark.parametrize("name", ["fetch", "far"])
async def test_permit_request_of_an_agent_is_refused_with_the_rule(tmp_path: Path, name: str) -> None:
    async with Remit.open(tmp_path, agents=AGENTS) as remit:
        result = await remit.delegate(name, url="http://10.0.0.1/")
        assert "public-addresses-only" in f"{result.summary} {result.errors}"
        assert (await remit.delegate(name, url="https://example.com/x?token=hidden")).data == "fetched"
    asked = [entry for entry in audit_log(tmp_path) if entry.get("on_the_way")]
    assert [entry["verdict"] for entry in asked] == ["deny", "allow"]
    assert asked[1]["facts"]["url"] == "https://example.com/x"
    assert all(entry["sessions"] == [result.session_id] for entry in asked[:1])


async def test_decision_is_logged_before_the_agent_runs(tmp_path: Path) -> None:
    seen: list[set[str]] = []

    @agent
    async def look(ctx: Context) -> None:
        seen.append({session for entry in audit_log(tmp_path) for session in entry.get("sessions", ())})
        assert ctx.session_id in seen[-1]

    async with Remit.open(tmp_path, agents=[look]) as remit:
        done = await asyncio.gather(*(remit.delegate("look") for _ in range(20)))
        assert all(one.ok for one in done)
    assert len(seen) == 20
    together = [entry for entry in audit_log(tmp_path) if entry.get("action") == "look"]
    assert len(together) < 5  # equal decisions of one turn are one line


async def test_approved_delegation_runs_after_one_question(tmp_path: Path) -> None:
    person = Approver()
    async with Remit.open(tmp_path, agents=AGENTS, approver=person) as remit:
        result = await remit.delegate("tidy")
        assert result.data[0]["status"] == "completed"
        child = result.data[0]["metadata"]["session_id"]
        notices = [event.body["message"] for event in await remit.events(child) if event.kind == "notice"]
        assert any("Waiting for a person's approval" in notice for notice in notices)
    asked, decision, seconds = person.asked[0]
    assert len(person.asked) == 1
    assert (asked.caller, asked.action, asked.session_id, decision.rules) == ("tidy", "wipe", child, ("ask-before-removing-folders",))
    assert "tidy wants to remove build" in decision.question
    assert 0 < seconds <= 120
    assert [(e["event"], e["verdict"], e.get("by")) for e in audit_log(tmp_path)[-2:]] == [
        ("decided", "ask", None),
        ("asked", "allow", "Ada"),
    ]


async def test_approval_that_nobody_gives_runs_nothing(tmp_path: Path) -> None:
    async with Remit.open(tmp_path, agents=AGENTS) as remit:
        child = (await remit.delegate("tidy")).data[0]
        assert (child["status"], child["stop_reason"]) == ("failed", "refused")
        assert "no person can be asked" in child["errors"][0]["message"]
        assert (await remit.describe(child["metadata"]["session_id"])).state is State.REFUSED
    async with Remit.open(tmp_path, agents=AGENTS, approver=Approver(answer=False)) as remit:
        assert (await remit.delegate("tidy")).data[0]["stop_reason"] == "refused"
    settings = {"approval_seconds": 0.1}
    async with Remit.open(tmp_path, agents=AGENTS, approver=Approver(after=60), settings=settings) as remit:
        child = (await remit.delegate("tidy")).data[0]
        assert "no answer within" in child["errors"][0]["message"]
    assert ran == []


async def test_pending_approval_can_be_cancelled_and_ends_at_the_deadline(tmp_path: Path) -> None:
    person = Approver(after=60)
    rules = PERMIT + '@ask("may it?") permit (principal, action == Action::"digest", resource);'
    async with Remit.open(tmp_path, agents=AGENTS, approver=person, policy=rules) as remit:
        handle = await remit.start("digest")
        await asyncio.wait_for(person.is_asked.wait(), 10)
        await remit.cancel(handle.session_id, "enough")
        result = await handle.result()
        assert result.stop_reason is StopReason.CANCELLED
    assert ran == []
    assert audit_log(tmp_path)[-1]["by"] == "it was stopped while it waited"
    async with Remit.open(tmp_path, agents=AGENTS, approver=Approver(after=60), policy=rules) as remit:
        late = await remit.delegate("digest", timeout=0.3)
    assert late.stop_reason in (StopReason.DEADLINE, StopReason.REFUSED)
    assert ran == []


@pytest.mark.parametrize("mode", ["permissive", "disabled"])
async def test_permissive_and_disabled_modes_are_logged(tmp_path: Path, mode: str) -> None:
    async with Remit.open(tmp_path, agents=AGENTS, settings={"policy_mode": mode}) as remit:
        for _ in range(3):
            assert (await remit.delegate("wipe", path="../x")).ok
    if mode == "permissive":
        assert {(e["verdict"], e["strict"]) for e in audit_log(tmp_path) if "strict" in e} == {("allow", "deny")}
    else:
        assert [entry["event"] for entry in audit_log(tmp_path)] == ["disabled"], "once"


async def test_policy_file_replaces_the_default_and_is_reloaded(tmp_path: Path) -> None:
    home = tmp_path / ".remit"
    home.mkdir()
    rules = home / "policy.cedar"
    rules.write_text('@id("only-digest") permit (principal, action == Action::"digest", resource);')
    async with Remit.open(tmp_path, agents=AGENTS) as remit:
        assert (await remit.delegate("digest")).ok
        refused = await remit.delegate("fetch", url="https://example.com/")
        assert "No rule of the policy (.remit/policy.cedar) permits" in refused.errors[0].message
        assert "permit (principal" in refused.errors[0].recommendation
        rules.write_text('permit (principal, action, resource);\nforbid (principal, action == Action::"digest", resource);')
        await asyncio.sleep(0.6)
        assert not (await remit.delegate("digest")).ok
        rules.unlink()
        await asyncio.sleep(0.6)
        assert (await remit.delegate("digest")).ok


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (f"{PERMIT}\n\nforbid (principal, actoin, resource);".encode(), "line 3"),
        ("elsewhere.cedar", "there is no such file"),
        ("/dev/zero", "it is not a file"),
    ],
    ids=["syntax error", "dangling link", "link to a device"],
)
async def test_unreadable_policy_refuses_everything(tmp_path: Path, content: bytes | str, words: str) -> None:
    """The default policy does not replace an unreadable one."""
    rules = tmp_path / ".remit" / "policy.cedar"
    rules.parent.mkdir()
    if isinstance(content, str):
        rules.symlink_to(content)
    else:
        rules.write_bytes(content)
    async with Remit.open(tmp_path, agents=AGENTS) as remit:
        refused = await remit.delegate("digest")
        assert (refused.errors[0].code, ran) == ("POLICY_DENIED", [])
        assert words in refused.errors[0].message
        assert words != "line 3" or "remit policy check" in refused.errors[0].recommendation
        rules.unlink()
        rules.write_text(PERMIT)
        await asyncio.sleep(0.6)
        assert (await remit.delegate("digest")).ok


async def test_unwritable_audit_log_refuses_everything(tmp_path: Path) -> None:
    audit_path(tmp_path).mkdir(parents=True)
    async with Remit.open(tmp_path, agents=AGENTS) as remit:
        with pytest.raises(Exception, match="audit"):
            await remit.delegate("digest")
    assert ran == []


# ---- many paths, and agents that act for their caller

PATH_RULES = (
    DEFAULT_RULES
    + """
@id("private") forbid (principal, action, resource) when { context has path && context.path like "private/*" };
"""
)


@agent(effects=("read",))
async def near(ctx: Context, paths: list[str]) -> list[str]:
    return await ctx.permitted(paths)


@agent(effects=("read",), isolation="process")
def distant(ctx: BlockingContext, paths: list[str]) -> list[str]:
    return ctx.permitted(paths)


@pytest.mark.parametrize("name", ["near", "distant"])
async def test_permitted_filters_many_paths_with_a_short_log(tmp_path: Path, name: str) -> None:
    async with Remit.open(tmp_path, agents=[near, distant], policy=PATH_RULES) as remit:
        paths = [f"src/{number}.py" for number in range(450)]
        result = await remit.delegate(name, paths=[*paths, "private/x.py", "../out", ".env", "kept"])
        assert result.data == [*paths, "kept"]
    asked = [entry for entry in audit_log(tmp_path) if entry.get("on_the_way")]
    assert [entry["facts"]["path"] for entry in asked if entry["verdict"] == "deny"] == ["private/x.py", "../out", ".env"]
    assert sum(entry["alike"] for entry in asked if entry["verdict"] == "allow") == 451
    assert len(asked) < 10


async def test_analysis_skips_files_that_the_policy_forbids(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "hidden.py").write_text("def hidden_thing():  # TODO keep secret\n    return 1\n")
    (tmp_path / "open.py").write_text("def open_thing():\n    return 1\n")
    async with Remit.open(tmp_path, policy=PATH_RULES) as remit:
        result = await remit.delegate("coder.analyze_code")
        reports = "".join((tmp_path / one.path).read_text() for one in result.artifacts)
    assert "open_thing" in reports
    assert "hidden_thing" not in reports
    assert "keep secret" not in reports
    assert "not to be read by the policy" in reports


@pytest.mark.parametrize("name", ["direct", "passing"])
async def test_agent_that_acts_for_its_caller_is_judged_as_the_caller(tmp_path: Path, name: str) -> None:
    @agent
    async def limited(ctx: Context, to: str) -> str:
        await ctx.delegate(to, **({"then": "leaf"} if to == "passing" else {}))
        return "done"

    async def hand_on(ctx: Context, arguments: dict[str, str]) -> str:
        return (await ctx.delegate(arguments["then"])).summary

    rules = DEFAULT_RULES + '@id("limited") forbid (principal == Agent::"limited", action == Action::"leaf", resource);'
    agents = [limited, Scripted("leaf"), Scripted("passing", hand_on, acts_for_caller=True)]
    async with Remit.open(tmp_path, agents=agents, policy=rules) as remit:
        done = await remit.delegate("limited", to="leaf" if name == "direct" else "passing")
        refused = [one for one in await remit.tree(done.session_id) if one.state == "refused"]
        assert [(one.agent, one.caller) for one in refused] == [("leaf", "limited")]
        assert (await remit.delegate("passing", then="leaf")).ok
