"""Agent files while a project is open: edited, added, removed, made faulty; and models from files end to end (item 2 of the models)."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from remit import Remit
from remit.agents import directory, watching
from remit.cli.agents_new import LOOKING, new
from remit.cli.exits import Exit
from remit.cli.project import open_directory
from remit.core.errors import Misused
from remit.testing.models import Call, Reply, Say, Script, ScriptedModels, Stray, valid_return
from remit.tool.tool import DelegateTool

DONE = Reply(lambda request: Say(valid_return(request)))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED_KEY", "a key")


def toml(server: ScriptedModels) -> str:
    address = f'[models.scripted]\nkind = "openai"\nurl = "{server.openai_url}"\nmodel = "scripted"\nkey_variable = "SCRIPTED_KEY"\n'
    return f'model = "scripted"\n{address}'


@asynccontextmanager
async def project(root: Path, script: Script = ()) -> AsyncIterator[tuple[Remit, ScriptedModels]]:
    async with ScriptedModels(script) as server:
        (root / "remit.toml").write_text(toml(server))
        async with Remit.open(root) as remit:
            yield remit, server


def write(root: Path, name: str, head: str = "", body: str = "You are short.", folder: str = ".remit/agents") -> Path:
    place = root / folder / f"{name}.md"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"---\nname: {name}\ndescription: It is {name}.\n{head}---\n{body}\n")
    return place


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < end, "it took too long"
        await asyncio.sleep(0.05)


MODEL = "remit:\n  kind: model\n"


async def test_files_are_added_edited_and_removed_while_the_project_is_open(tmp_path: Path) -> None:
    async with project(tmp_path, [DONE]) as (remit, server):
        tool = DelegateTool(remit)
        assert remit.directory.find("scout") is None
        place = write(tmp_path, "scout", MODEL)
        assert (await remit.delegate("scout", task="Look.")).ok

        def is_offered() -> bool:
            return "scout" in tool.schema()["inputSchema"]["properties"]["target"]["enum"]

        assert is_offered()
        write(tmp_path, "scout", MODEL, body="You are long.")
        await until(lambda: remit.directory.declarations.known["scout"][1].instructions == "You are long.")
        place.unlink()
        await until(lambda: not is_offered(), 2.0)
        gone = await remit.delegate("scout", task="Look.")
        assert gone.errors[0].code == "INVALID_TARGET"
    assert server.requests[0].system.startswith("You are short.")


async def test_an_edited_file_is_taken_up_by_itself_and_what_runs_keeps_what_it_has(tmp_path: Path) -> None:
    """Nobody lists agents meanwhile, and the name is known all the time."""
    started, go_on = asyncio.Event(), asyncio.Event()

    async with project(tmp_path, {"first": [Call("delegate", target="gate", parameters={})], "": [DONE]}) as (remit, server):
        from remit import agent

        @agent("gate")
        async def gate() -> str:
            started.set()
            await go_on.wait()
            return "open"

        remit.register(gate)
        write(tmp_path, "scout", "tools: gate\n" + MODEL)
        handle = await remit.start("scout", task="first")
        await started.wait()
        before = remit.directory.find("scout")
        write(tmp_path, "scout", MODEL, body="You are another.")
        await until(lambda: remit.directory.find("scout") is not before)
        go_on.set()
        await handle.cancel("seen enough")
        assert all("You are another." not in request.system for request in server.requests)


async def test_one_that_became_faulty_is_gone_with_its_line_and_no_other_is_touched(tmp_path: Path) -> None:
    async with project(tmp_path) as (remit, _):
        write(tmp_path, "one", MODEL)
        write(tmp_path, "two", MODEL, folder=".remit/agents")
        assert {"one", "two"} <= set(remit.directory.names())
        two = remit.directory.find("two")
        write(tmp_path, "one", "remit:\n  kind: model\n  requests: none\n")
        assert "one" not in remit.directory.names()
        assert [problem for problem in remit.directory.problems if "one.md: line 6: requests: " in problem]
        assert remit.directory.find("two") is two
        write(tmp_path, "one", MODEL)
        assert "one" in remit.directory.names()
        assert remit.directory.problems == []


async def test_a_file_in_a_roles_place_gives_it_back_when_it_is_gone(tmp_path: Path) -> None:
    async with project(tmp_path) as (remit, _):

        def found() -> Any:
            agent = remit.directory.find("planner")
            assert agent is not None
            return agent.spec

        remit.directory.names()
        assert found().source.startswith("remit.")
        place = write(tmp_path, "planner", MODEL)
        remit.directory.names()
        assert found().source == str(place)
        place.unlink()
        remit.directory.names()
        assert found().source.startswith("remit.")


async def test_agents_and_bindings_of_the_settings_are_taken_up_too_and_a_broken_file_leaves_them(tmp_path: Path) -> None:
    async with project(tmp_path) as (remit, server):
        (tmp_path / "remit.toml").write_text(
            toml(server) + '[agents.echo]\ncommand = "cat"\nanswers = "value"\n[roles]\nplanner = "model"\n'
        )
        assert (await remit.delegate("echo", task="hello")).ok
        planner = remit.directory.find("planner")
        assert planner is not None
        assert planner.spec.kind == "model"
        (tmp_path / "remit.toml").write_text("[agents.echo\n")
        assert "echo" in remit.directory.names()
        assert any("hold as they were" in problem for problem in remit.directory.problems)
        (tmp_path / "remit.toml").write_text(toml(server))
        assert "echo" not in remit.directory.names()
        assert remit.directory.problems == []


async def test_a_schema_in_a_file_of_its_own_is_read_again_when_that_changes(tmp_path: Path) -> None:
    (tmp_path / "form.json").write_text('{"type": "object"}')
    async with project(tmp_path) as (remit, _):
        write(tmp_path, "former", "remit:\n  kind: model\n  output_schema: form.json\n")
        assert {spec.name: spec for spec in remit.directory.specs()}["former"].output_schema == {"type": "object"}
        (tmp_path / "form.json").write_text('{"type": "array"}')
        remit.directory.look_again()
        assert {spec.name: spec for spec in remit.directory.specs()}["former"].output_schema == {"type": "array"}


async def test_tasks_are_routed_to_a_file_from_the_moment_it_is_there(tmp_path: Path) -> None:
    """S4.3."""
    async with project(tmp_path, [DONE]) as (remit, _):
        write(tmp_path, "rusty", "remit:\n  kind: model\n  operations: [implement]\n  languages: [rust]\n")
        remit.directory.names()
        done = await remit.delegate("/implement", task={"task_number": 3, "language": "rust"}, parameters={"task": "Do it."})
        record = await remit.describe(done.session_id)
        assert record.agent == "rusty"
        assert record.task is not None
        assert record.task.extra["route"] == "Routing /implement (task 3, Language: rust, has_plan: false) to rusty (direct)"
        assert "(for rust)" in DelegateTool(remit).schema()["description"]
        (tmp_path / ".remit/agents/rusty.md").unlink()
        remit.directory.names()
        assert remit.settings.routing.commands["implement"][-1].agent == "implementer"
        assert all(rule.agent != "rusty" for rule in remit.settings.routing.commands["implement"])


async def test_what_has_not_changed_is_not_read_again_and_stays_the_same_agent(tmp_path: Path) -> None:
    async with project(tmp_path) as (remit, _):
        place = write(tmp_path, "scout", MODEL)
        first = remit.directory.specs()
        await asyncio.sleep(0.15)
        remit.directory.look_again()
        assert remit.directory.changed() is None
        os.utime(place, (2**33, 2**33))  # a time to come makes nobody read it for ever
        remit.directory.look_again()
        await asyncio.sleep(0.15)
        remit.directory.look_again()
        assert remit.directory.changed() is None
        again = remit.directory.specs()
        assert all(one is other for one, other in zip(first, again, strict=True))


# ---- models from files, end to end


async def test_a_claude_file_with_read_and_grep_reaches_those_and_nothing_else(tmp_path: Path) -> None:
    """A model acts on the world only by delegating, and a file of another tool's names what it may."""
    (tmp_path / "notes.txt").write_text("The answer is 42.\n")
    calls = [
        Call("delegate", target="worker", operation="read_file", parameters={"path": "notes.txt"}),
        Call("delegate", target="worker", operation="write_file", parameters={"path": "notes.txt", "content": "no"}),
        Call("delegate", target="coder", operation="execute_code", parameters={"code": "print(1)"}),
        Call("delegate", target="planner", parameters={"task": "Plan."}),
        Stray("bash", command="rm notes.txt"),
    ]
    async with project(tmp_path, [*calls, DONE]) as (remit, server):
        write(tmp_path, "looker", "tools: Read, Grep\nmodel: sonnet\n", folder=".claude/agents")
        result = await remit.delegate("looker", task="What is the answer?")
        children = await remit.children(result.session_id)
    assert result.ok, result
    assert [child.agent for child in children] == ["worker.read_file"]
    assert (tmp_path / "notes.txt").read_text() == "The answer is 42.\n"
    targets = server.requests[0].tools[0].schema["properties"]
    assert set(targets["target"]["enum"]) <= {"worker", "results"}
    assert set(targets["operation"]["enum"]) <= {"read_file", "search_files", "read", "summarise"}


async def test_a_role_bound_to_a_model_writes_its_file_through_the_worker(tmp_path: Path) -> None:
    write_plan = Call(
        "delegate", target="worker", operation="write_file", parameters={"path": "plan.md", "content": "# Plan\n\nPhase 1.\n"}
    )
    async with project(tmp_path, [write_plan, Reply(lambda request: Say(valid_return(request, artifacts=["plan.md"])))]) as (remit, server):
        (tmp_path / "remit.toml").write_text(toml(server) + '[roles]\nplanner = "scripted"\n')
        remit.directory.names()
        result = await remit.delegate("planner", task="Plan it, into plan.md.")
    assert (tmp_path / "plan.md").read_text().startswith("# Plan")
    assert result.metadata.agent_type == "planner"
    assert result.ok, result


# ---- remit agents new


async def test_a_file_that_was_just_written_works_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    reading = Call("delegate", target="worker", operation="read_file", parameters={"path": "notes.txt"})
    async with project(tmp_path, [reading, DONE]) as (remit, _):
        assert new("scout", "", LOOKING, "Finds: things # here", root=tmp_path) is Exit.OK
        said = capsys.readouterr().out
        result = await remit.delegate("scout", task="What is in notes.txt?")
        children = await remit.children(result.session_id)
        spec = next(spec for spec in remit.directory.specs() if spec.name == "scout")
    assert "Written: .remit/agents/scout.md" in said
    assert "remit delegate scout" in said
    assert result.ok, result
    assert [child.agent for child in children] == ["worker.read_file"]
    assert spec.description == "Finds: things # here"


@pytest.mark.parametrize(
    ("name", "given", "fault"),
    [
        ("../evil", {}, "not a name for an agent"),
        ("worker", {}, "There is an agent 'worker'"),
        ("scout", {}, "exists already"),
        ("one", {"model": "nobody:x"}, "names no model"),
        ("one", {"tools": "worker.red_file"}, "did you mean worker.read_file"),
        ("one", {"tools": "helpr"}, "there is no agent 'helpr'"),
        ("one", {"tools": "Bash(git *)"}, "some uses of it only"),
    ],
)
def test_a_name_that_is_taken_or_a_wish_that_makes_no_sense_writes_nothing(
    tmp_path: Path, name: str, given: dict[str, str], fault: str
) -> None:
    write(tmp_path, "scout", MODEL)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(Misused) as raised:
        new(name, given.get("model", ""), given.get("tools", LOOKING), root=tmp_path)
    assert fault in raised.value.message
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_the_editor_is_called_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "sh -c 'echo edited >> \"$1\"' sh")
    assert new("scout", "anthropic:claude-x, ollama:small", "", root=tmp_path, edit=True) is Exit.OK
    text = (tmp_path / ".remit/agents/scout.md").read_text()
    assert text.endswith("edited\n")
    assert 'model: ["anthropic:claude-x", "ollama:small"]' in text
    monkeypatch.delenv("VISUAL")
    monkeypatch.delenv("EDITOR", raising=False)
    with pytest.raises(Misused, match="needs an editor"):
        new("other", root=tmp_path, edit=True)
    assert not (tmp_path / ".remit/agents/other.md").exists()


async def test_an_agent_that_was_just_written_is_reached_by_a_tool_that_listed_a_moment_ago(tmp_path: Path) -> None:
    """Lists may be a moment old, for they are asked for twice with every call; a name that is not in them is looked for at once."""
    async with project(tmp_path, [DONE]) as (remit, _):
        tool = DelegateTool(remit)
        tool.schema()
        write(tmp_path, "scout", MODEL)
        assert (await tool.call({"target": "scout", "parameters": {"task": "Look."}})).success
        write(tmp_path, "house.cleaner", MODEL)
        assert (await tool.call({"target": "house", "operation": "cleaner", "parameters": {"task": "Clean."}})).success


async def test_listing_looks_at_the_folders_now_and_then_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from remit.agents import rereading

    looked = 0

    def look(*given: Any) -> Any:
        nonlocal looked
        looked += 1
        return watching.look(*given)

    async with project(tmp_path) as (remit, _):
        write(tmp_path, "scout", MODEL)
        remit.directory.specs()
        monkeypatch.setattr(rereading, "look", look)
        began = asyncio.get_running_loop().time()
        for _ in range(1000):
            remit.directory.specs()
        assert looked <= (asyncio.get_running_loop().time() - began) / directory.LOOK_SECONDS * 2 + 2


@pytest.mark.parametrize(
    ("name", "why"),
    [("README", "would not be read"), ("_draft", "would not be read"), ("new", "is a command"), ("planner", "remit roles planner --write")],
)
def test_no_file_is_written_that_would_not_be_read_or_would_take_a_roles_place(tmp_path: Path, name: str, why: str) -> None:
    """A role of the board that looks at files and changes none would write no plan."""
    with pytest.raises(Misused, match=why):
        new(name, root=tmp_path)
    assert not (tmp_path / ".remit/agents").exists()


def test_nothing_takes_the_place_of_whom_ask_and_chat_talk_to(tmp_path: Path) -> None:
    place = write(tmp_path, "assistant", MODEL)
    (tmp_path / "remit.toml").write_text('[agents.assistant]\ncommand = "cat"\n')
    opened = open_directory(tmp_path)
    found = opened.find("assistant")
    assert found is not None
    assert found.spec.source.startswith("remit.")
    assert [problem.partition(": 'assistant' is whom")[0] for problem in opened.problems] == [
        "remit.toml:[agents.assistant]", str(place)
    ]  # fmt: skip
