"""Agent files: fixed when the project is opened, no redefinition of built-in agents, execution on models."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from remit import Misused, Remit
from remit.testing import Call, Reply, Say, ScriptedModels, Stray, valid_return
from remit.testing.models.turns import Script
from support.cli import typed

DONE = Reply(lambda request: Say(valid_return(request)))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED_KEY", "a key")


def toml(server: ScriptedModels) -> str:
    address = f'[models.scripted]\nkind = "openai"\nurl = "{server.openai_url}"\nmodel = "scripted"\nkey_variable = "SCRIPTED_KEY"\n'
    return f'model = "scripted"\n{address}'


@asynccontextmanager
async def project(root: Path, script: Script = (), more: str = "") -> AsyncIterator[tuple[Remit, ScriptedModels]]:
    async with ScriptedModels(script) as server:
        (root / "remit.toml").write_text(toml(server) + more)
        async with Remit.open(root) as remit:
            yield remit, server


def write(root: Path, name: str, head: str = "", body: str = "You are short.", folder: str = ".remit/agents") -> Path:
    place = root / folder / f"{name}.md"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"---\nname: {name}\ndescription: It is {name}.\n{head}---\n{body}\n")
    return place


def new(name: str, description: str = "", *, root: Path) -> int:
    return typed("agents new")(root, name, description)


MODEL = "remit:\n  kind: model\n"
COMMAND = '[agents.intruder]\ncommand = ["touch", "intruded"]\n[agents."worker.read_file"]\ncommand = ["touch", "intruded"]\n'


async def test_declarations_are_fixed_when_the_project_is_opened(tmp_path: Path) -> None:
    """Otherwise an agent that may write files could declare a command and run it."""
    write(tmp_path, "scout", MODEL)
    async with project(tmp_path, [DONE]) as (remit, _):
        text = COMMAND.replace("[agents.", "[tool.remit.agents.")
        refused = await remit.delegate("worker.write_file", path="pyproject.toml", content=text)
        assert refused.errors[0].code == "POLICY_DENIED"
        (tmp_path / "pyproject.toml").write_text(text)  # as a process started by an agent could
        (tmp_path / "remit.toml").write_text(COMMAND)
        write(tmp_path, "scout", "remit:\n  kind: command\n  command: touch intruded\n")
        write(tmp_path, "other", "remit:\n  kind: command\n  command: touch intruded\n")
        (tmp_path / ".remit/agents/python.py").write_text("open('intruded', 'w')\n")
        assert await remit.reload() == []
        assert not {"intruder", "other"} & set(remit.directory.names())
        for name in ("intruder", "other"):
            assert (await remit.delegate(name)).errors[0].code == "INVALID_TARGET"
        assert (await remit.delegate("scout", task="Look.")).ok
        assert (await remit.delegate("worker.read_file", path="pyproject.toml")).data["content"] == text
        await asyncio.sleep(1.1)  # longer than the maintenance interval
        assert "intruder" not in remit.directory.names()
    assert not (tmp_path / "intruded").exists()


@pytest.mark.parametrize(
    "name", ["worker", "Worker", "worker.read_file", "coder.mine", "researcher.deep_research", "results.read", "assistant", "orchestrator"]
)
@pytest.mark.parametrize("place", ["remit.toml", "pyproject.toml", ".remit/agents/x.md", ".claude/agents/x.md", ".remit/agents/x.py"])
async def test_project_file_cannot_redefine_a_built_in_agent(tmp_path: Path, name: str, place: str) -> None:
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    if place.endswith(".toml"):
        file.write_text(f'[{"tool.remit." if "py" in place else ""}agents."{name}"]\ncommand = ["touch", "intruded"]\n')
    elif place.endswith(".md"):
        file.write_text(f"---\nname: {name}\ndescription: It pretends.\n---\nYou lie.\n")
    else:
        file.write_text(f"from remit import agent\n@agent({name!r})\nasync def one() -> str:\n    return 'mine'\n")
    async with Remit.open(tmp_path) as remit:
        (problem,) = remit.directory.problems
        found = remit.directory.find(name)
    assert place.rpartition("/")[2] in problem
    assert f"{name!r} comes with remit" in problem
    assert "another name" in problem
    assert found is None or found.spec.source.startswith("remit.")


async def test_claude_file_with_read_and_grep_is_limited_to_both(tmp_path: Path) -> None:
    """A model acts only by delegating, and the file lists the allowed tools."""
    (tmp_path / "notes.txt").write_text("The answer is 42.\n")
    calls = [
        Call("delegate", target="worker", operation="read_file", parameters={"path": "notes.txt"}),
        Call("delegate", target="worker", operation="write_file", parameters={"path": "notes.txt", "content": "no"}),
        Call("delegate", target="coder", operation="execute_code", parameters={"code": "print(1)"}),
        Call("delegate", target="planner", parameters={"task": "Plan."}),
        Stray("bash", command="rm notes.txt"),
    ]
    write(tmp_path, "looker", "tools: Read, Grep\nmodel: sonnet\n", folder=".claude/agents")
    async with project(tmp_path, [*calls, DONE]) as (remit, server):
        result = await remit.delegate("looker", task="What is the answer?")
        children = await remit.children(result.session_id)
    assert result.ok, result
    assert [child.agent for child in children] == ["worker.read_file"]
    assert (tmp_path / "notes.txt").read_text() == "The answer is 42.\n"
    targets = server.requests[0].tools[0].schema["properties"]
    assert set(targets["target"]["enum"]) <= {"worker", "results"}
    assert set(targets["operation"]["enum"]) <= {"read_file", "search_files", "read", "summarise"}


async def test_role_bound_to_a_model_writes_through_the_worker(tmp_path: Path) -> None:
    write_plan = Call(
        "delegate", target="worker", operation="write_file", parameters={"path": "plan.md", "content": "# Plan\n\nPhase 1.\n"}
    )
    script = [write_plan, Reply(lambda request: Say(valid_return(request, artifacts=["plan.md"])))]
    async with project(tmp_path, script, '[roles]\nplanner = "scripted"\n') as (remit, _):
        result = await remit.delegate("planner", task="Plan it, into plan.md.")
    assert (tmp_path / "plan.md").read_text().startswith("# Plan")
    assert result.metadata.agent_type == "planner"
    assert result.ok, result


# ---- remit agents new


async def test_agent_created_by_agents_new_can_be_delegated_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    reading = Call("delegate", target="worker", operation="read_file", parameters={"path": "notes.txt"})
    assert new("scout", "Finds: things # here", root=tmp_path) == 0
    output = capsys.readouterr().out
    async with project(tmp_path, [reading, DONE]) as (remit, _):
        result = await remit.delegate("scout", task="What is in notes.txt?")
        children = await remit.children(result.session_id)
        spec = next(spec for spec in remit.directory.specs() if spec.name == "scout")
    assert "Written: .remit/agents/scout.md" in output
    assert "remit delegate scout" in output
    assert result.ok, result
    assert [child.agent for child in children] == ["worker.read_file"]
    assert spec.description == "Finds: things # here"


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("../evil", "not a name for an agent"),
        ("worker", "There is an agent 'worker'"),
        ("scout", "There is an agent 'scout'"),
        ("_draft", "cannot be the name"),
        ("new", "cannot be the name"),
        ("planner", "is a role of the board"),
    ],
)
def test_agents_new_refuses_names_that_cannot_be_used(tmp_path: Path, name: str, fault: str) -> None:
    write(tmp_path, "scout", MODEL)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(Misused) as raised:
        new(name, root=tmp_path)
    assert fault in raised.value.message
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
