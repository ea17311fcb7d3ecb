"""The directory of agents: registration, files, plugins."""

import os
from pathlib import Path
from typing import Any

import pytest

from remit import DelegateTool, Misused, Remit, agent
from remit.agents.directory import Directory
from remit.testing import Scripted
from support import cli
from support.processes import descendants


async def _one() -> None: ...


def directory() -> Directory:
    return Directory(lambda declared: declared)


def test_two_agents_with_one_name_are_refused() -> None:
    known = directory()
    known.register(agent("a")(_one))
    known.register(agent("a")(_one))
    with pytest.raises(Misused, match="Two agents are named 'a'"):
        known.register(Scripted("a"))
    with pytest.raises(Misused, match="is not an agent"):
        known.register(_one)  # type: ignore[arg-type]
    assert known.find("b") is None


KIND = """
import asyncio

class EchoAgent:
    parameters_schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

    def __init__(self, definition, deps):
        self.spec = definition.spec

    def check(self, parameters):
        return parameters

    async def perform(self, ctx, arguments):
        return arguments["text"]

    async def close(self):
        if self.spec.name == "hangs":
            await asyncio.Event().wait()
        raise RuntimeError("it does not close")

class Raises:
    def __init__(self, definition, deps):
        raise ValueError("it needs a database")
"""


@pytest.fixture
def added_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A package that adds kinds of agents; returns agents of these kinds."""
    (tmp_path / "echo_kind.py").write_text(KIND)
    metadata = tmp_path / "echo_kind-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-kind\nVersion: 1\n")
    kinds = {"echo": "EchoAgent", "raises": "Raises", "absent": "Absent"}
    lines = "".join(f"{kind} = echo_kind:{name}\n" for kind, name in kinds.items())
    (metadata / "entry_points.txt").write_text(f"[remit.executors]\n{lines}")
    monkeypatch.syspath_prepend(str(tmp_path))
    return {kind[0]: {"kind": kind, "answers": "value"} for kind in (*kinds, "unknown")}


async def test_package_adds_a_kind_of_agent_with_an_entry_point(tmp_path: Path, added_kinds: dict[str, Any]) -> None:
    async with Remit.open(tmp_path, settings={"agents": added_kinds}) as remit:
        assert (await remit.delegate("e", text="x")).data == "x"
        assert "e(text: string)" in DelegateTool(remit).schema()["description"]
        problems = "\n".join(remit.directory.problems)  # broken kinds take no other agent with them
    for fault in ("kind raises: ValueError: it needs a database", "kind absent: AttributeError", "unknown kind 'unknown'"):
        assert fault in problems


def test_parameters_of_an_added_kind_are_listed_without_opening_the_project(tmp_path: Path, added_kinds: dict[str, Any]) -> None:
    (tmp_path / "remit.toml").write_text('[agents.parrot]\nkind = "echo"\n')
    (listed,) = [one for one in cli.run_json("agents", cwd=tmp_path)["agents"] if one["name"] == "parrot"]
    assert list(listed["parameters"]["properties"]) == ["text"]


async def test_agent_that_raises_or_hangs_on_close_leaves_the_rest_closed(
    tmp_path: Path, added_kinds: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remit.agents.executors.CLOSE_SECONDS", 0.1)
    echo, command = {"kind": "echo"}, {"command": "cat", "answers": "value"}
    of_others = set(descendants(os.getpid()))
    async with Remit.open(tmp_path, settings={"agents": {"raises": echo, "hangs": echo, "cat": command}}) as remit:
        assert (await remit.delegate("cat", task="x")).ok
        started = set(descendants(os.getpid())) - of_others
        assert started
    assert not started & set(descendants(os.getpid()))


async def test_file_from_a_clone_chooses_no_executor_of_a_package(tmp_path: Path, added_kinds: dict[str, Any]) -> None:
    """What it does with instructions is not known here."""
    (tmp_path / ".claude/agents").mkdir(parents=True)
    (tmp_path / ".claude/agents/one.md").write_text("---\nname: one\ndescription: d\nremit: {runs_on: e}\n---\nDo as I say.\n")
    async with Remit.open(tmp_path, settings={"agents": {"e": {"kind": "echo"}}}) as remit:
        (problem,) = remit.directory.problems
        assert "runs_on: e is of the kind echo, which a file in this folder cannot choose itself" in problem
        assert remit.directory.find("one") is None
