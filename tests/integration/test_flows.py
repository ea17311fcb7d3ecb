"""Flows: compositions in project files are agents `flow.NAME`; `remit run` runs them."""

from pathlib import Path
from typing import Any

import pytest

from remit import Context, Remit, agent
from remit.testing import Scripted, answer
from support.cli import run, run_json

WORDS = """\
description = "List texts and read each of them"
timeout = 60
result = {first = {"$" = "texts#/0/content"}, folder = {"$" = "input#/folder"}}
[parameters.folder]
type = "string"
[parameters.pattern]
type = "string"
default = "*.txt"
enum = ["*.txt", "*.md"]
[[sequence]]
id = "files"
call = "worker.list_files"
parameters = {path = {"$" = "input#/folder"}, pattern = {"$" = "input#/pattern"}}
[[sequence]]
id = "texts"
each = {call = "worker.read_file", parameters = {path = {"$" = "item#/path"}}}
over = "files#/entries"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / ".remit" / "flows").mkdir(parents=True)
    (root / "notes").mkdir()
    (root / "notes" / "a.txt").write_text("Dear reader")
    _write(root, "words", WORDS)
    return root


def _write(root: Path, name: str, text: str) -> None:
    (root / ".remit" / "flows" / f"{name}.toml").write_text(text)


def test_flow_runs_by_name_and_by_file(project: Path, tmp_path: Path) -> None:
    expected = {"first": "Dear reader", "folder": "notes"}
    assert run_json("run", "words", "folder=notes", cwd=project)["data"] == expected
    assert run_json("run", ".remit/flows/words.toml", "folder=notes", cwd=project)["data"] == expected
    assert run_json("delegate", "flow.words", "folder=notes", cwd=project)["data"] == expected
    (tmp_path / "mine.toml").write_text(WORDS)
    done = run_json("run", str(tmp_path / "mine.toml"), "folder=notes", cwd=project)
    assert (done["data"], done["metadata"]["agent_type"]) == (expected, "compose.run")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("words",), "Parameters of flow.words: folder: it is required"),
        (("words", "foldr=notes"), "did you mean folder?"),
        (("words", "folder=notes", "pattern=*"), "pattern must be one of"),
        (("wrods",), "There is no flow 'wrods'. There are words."),
        (("lost.toml",), "Cannot read lost.toml"),
    ],
)
def test_invalid_flow_arguments_are_refused(project: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run("run", *arguments, cwd=project)
    assert done.code != 0
    assert message in done.stdout + done.stderr


@pytest.mark.usefixtures("untrusted")
def test_unapproved_flow_is_listed_and_refused(project: Path) -> None:
    listed = {one["name"]: one for one in run_json("agents", cwd=project)["agents"]}
    assert listed["flow.words"]["kind"] == "not approved"
    refused = run_json("run", "words", "folder=notes", cwd=project, code=5)
    assert refused["errors"][0]["code"] == "NOT_TRUSTED"
    calls = '[[sequence]]\ncall = "worker.list_files"\n[[sequence]]\ncall = "flow.words"\nparameters = {folder = {"$" = "0#/path"}}'
    (outside := project.parent / "calls.toml").write_text(calls)
    before = run_json("run", str(outside), cwd=project, code=5)
    assert before["errors"][0]["message"].startswith("Step 1: flow.words is declared in"), "nothing has run"
    run("trust", "--yes", cwd=project)
    assert run_json("run", "words", "folder=notes", cwd=project)["status"] == "completed"
    _write(project, "words", WORDS.replace("notes", "other") + "\n")
    assert run_json("run", "words", "folder=notes", cwd=project, code=5)["errors"][0]["code"] == "NOT_TRUSTED"
    (project / "elsewhere.toml").write_text(WORDS)
    assert "elsewhere.toml is not approved" in run("run", "elsewhere.toml", "folder=notes", cwd=project).stderr
    assert run("run", "elsewhere.toml", "folder=notes", "--trust", cwd=project).code == 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("sequence = [", "it is not TOML"),
        ("", "a step has exactly one of"),
        ('[[sequence]]\ncall = "a"\nparameters = {x = {"$" = "input#/y"}}', "Step 0: it refers to the input 'y', which is not given"),
        ('parameters = 5\n[[sequence]]\ncall = "a"', "parameters: write a table for each"),
        ('timeout = "soon"\n[[sequence]]\ncall = "a"', "timeout: it is not a number of seconds"),
        ('sequnce = ["a"]\nparallel = ["b"]', "unknown key 'sequnce'"),
    ],
)
async def test_invalid_flow_is_reported_and_others_load(project: Path, text: str, problem: str) -> None:
    _write(project, "faulty", text)
    async with Remit.open(project) as remit:
        assert remit.directory.find("flow.faulty") is None
        assert remit.directory.find("flow.words") is not None
        (found,) = [one for one in remit.directory.problems if "faulty.toml" in one]
        assert problem in found


async def test_symlink_out_of_the_project_is_not_a_flow(project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside.toml").write_text(WORDS)
    (project / ".remit" / "flows" / "linked.toml").symlink_to(tmp_path / "outside.toml")
    async with Remit.open(project) as remit:
        assert remit.directory.find("flow.linked") is None


async def test_nested_flows_use_no_depth_and_cycles_are_refused(project: Path) -> None:
    @agent("place")
    async def place(ctx: Context) -> list[Any]:
        return [ctx.depth, *ctx.path]

    for name, called in {"outer": "flow.inner", "inner": "place", "a": "flow.b", "b": "flow.a", "self": "flow.self"}.items():
        _write(project, name, f'[[sequence]]\ncall = "start"\n[[sequence]]\ncall = "{called}"')
    start = Scripted("start", answer(0))
    async with Remit.open(project, agents=[place, start], settings={"max_depth": 1}) as remit:
        assert (await remit.delegate("flow.outer")).data == [0, [0, [1, "orchestrator", "place"]]]
        start.calls.clear()
        for name, cycle in (("a", "flow.a → flow.b → flow.a"), ("self", "flow.self → flow.self")):
            refused = await remit.delegate(f"flow.{name}")
            assert refused.errors[0].code == "CYCLE_DETECTED"
            assert f"Step 1: {cycle} is a cycle" in refused.errors[0].message
        assert (await remit.delegate("compose.run", sequence=["start", "flow.a"])).errors[0].code == "CYCLE_DETECTED"
        assert start.calls == []


async def test_flows_are_checked_once_however_often_they_are_called(project: Path) -> None:
    """Ten calls of the next flow at each of fifteen levels: checking each call again would never end."""
    for level in range(15):
        calls = f'{{call = "flow.level{level + 1}"}}, ' * 10
        _write(project, f"level{level}", f"sequence = [{calls}]")
    _write(project, "level15", 'sequence = ["start", "nobody"]')
    start = Scripted("start", answer(0))
    async with Remit.open(project, agents=[start]) as remit:
        refused = await remit.delegate("flow.level0")
        assert refused.errors[0].code == "INVALID_TARGET"
        assert "flow.level15: Step 1: there is no agent 'nobody'" in refused.errors[0].message
        _write(project, "level15", 'sequence = ["start"]')
    async with Remit.open(project, agents=[start]) as remit:
        assert remit.directory.find("flow.level0").check({})  # type: ignore[union-attr]
        assert start.calls == []
