"""Declarations of agents that are not Python functions, and their validation."""

from pathlib import Path
from typing import Any

import pytest

from remit import Misused, Remit
from remit.agents.definition import definition_of


def faults(**table: Any) -> str:
    with pytest.raises(Misused) as raised:
        definition_of("one", table, source="remit.toml, [agents.one]")
    return str(raised.value)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"command": "x", "time_out": 3}, "remit.toml, [agents.one]: time_out: there is no such key (did you mean timeout?)"),
        ({"command": "x", "retries": -1, "time_out": 3}, "retries"),
        ({"command": "x", "hand_in": "TERM"}, "is not a signal; write e.g. SIGTERM"),
        ({"command": "x", "isolation": "thread"}, "it is always process here"),
        ({"command": "x", "merge": True}, 'merge needs workspace = "worktree"'),
        ({"kind": "acp"}, 'kind = "acp" needs a command'),
        ({"command": "x", "timeout": -1}, "timeout: Input should be greater than 0"),
        ({"command": "x", "timeout": True}, "timeout: write a number, not true or false"),
        ({"kind": "model", "temperature": True}, "temperature: write a number, not true or false"),
        ({"command": 3}, "command"),
        ({"command": "x", "environment": {"A": 1}}, "environment.A"),
        ({"command": "x", "environment": {"REMIT_CALLER": "x"}}, "variables that begin with REMIT_ are set by remit alone"),
        ({"command": "x", "environment": {"A=B": "x"}}, "'A=B' is not a valid environment variable"),
        ({"command": "x", "environment": {"A": "x\0"}}, "'A' is not a valid environment variable"),
        ({"command": "x", "folder": "a\0b"}, "folder: 'a\\x00b' is not a folder"),
        ({"command": "echo 'half"}, "command: it cannot be split as a shell would"),
        ({"kind": "a2a"}, "needs its address"),
        ({"a2a": "http://x", "workspace": "worktree"}, "it has no folder of its own here"),
        ({"a2a": ""}, "a2a: "),
        ({"group": []}, "name its members"),
        ({"group": ["one", "one"]}, "each once"),
        ({"group": ["one"], "by": "luck"}, "by: "),
        ({"group": ["one"], "hedge": {"after": "soon"}}, "hedge.after: "),
        *(
            (table, f"{key}: an agent of this kind ({kind}) has no use for it")
            for kind, key, table in (
                ("a2a", "command", {"a2a": "http://x", "command": "ls"}),
                ("command", "remote", {"command": "ls", "remote": "y"}),
                ("command", "by", {"command": "ls", "by": "load"}),
                ("command", "mcp", {"mcp": {"command": "x"}, "kind": "command"}),
                ("group", "command", {"group": ["one"], "command": "ls"}),
                ("mcp", "allow", {"mcp": {"command": "x"}, "allow": ["read"]}),
                ("mcp", "contain", {"mcp": {"url": "http://127.0.0.1/"}, "contain": True}),
                ("mcp", "token_variable", {"mcp": {"command": "x"}, "token_variable": "T"}),
                ("model", "contain", {"kind": "model", "contain": True}),
            )
        ),
        ({"mcp": {"command": ["x"], "url": "http://127.0.0.1/"}}, "either {command"),
        ({"mcp": {"command": ["x"]}, "workspace": "worktree"}, "it has no folder of its own here"),
        ({"mcp": "nothing"}, ".mcp.json of this project has no server 'nothing'"),
        ({"command": ["x"], "contain": "yes"}, "contain"),
        ({"command": ["x"], "contain": 1}, "contain"),
        ({"command": ["x"], "hosts": ["example.com"]}, "hosts: requires contain = true"),
        ({"command": ["x"], "contain": True, "hosts": ["*.com"]}, "hosts"),
        ({"kind": "opencode", "model": "--dangerously-skip-permissions"}, "model: '--dangerously-skip-permissions' is not a valid model"),
    ],
)
def test_invalid_declaration_is_reported(table: dict[str, Any], words: str) -> None:
    assert words in faults(**table)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('grpc = "far:50051"', 'grpc = "HOST:PORT" (kind = "grpc") was removed: reach another remit by a2a'),
        ('kind = "grpc"', 'grpc = "HOST:PORT" (kind = "grpc") was removed: reach another remit by a2a'),
        ('command = ["cat"]\nworkspace = "copy"', 'workspace = "copy" was removed: write "worktree"'),
    ],
)
async def test_project_with_a_removed_kind_or_workspace_opens_and_says_what_to_do(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "remit.toml").write_text(f'[agents.old]\n{line}\n[agents.new]\ncommand = ["echo", "hi"]\nanswers = "value"\n')
    async with Remit.open(tmp_path, trust=True) as remit:
        assert any("remit.toml:[agents.old]" in said and words in said for said in remit.directory.problems)
        assert (await remit.delegate("new", task="x")).ok


async def test_parameter_that_the_schema_of_a_remote_agent_excludes_is_refused(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": False}
    settings = {"agents": {"far": {"a2a": "http://127.0.0.1:9/", "description": "Far away.", "parameters": schema}}}
    async with Remit.open(tmp_path, settings=settings) as remit:
        done = await remit.delegate("far", text="x", nosuch=1)
    assert done.errors[0].code == "INVALID_PARAMETERS"
    assert "nosuch: there is no such parameter" in done.errors[0].message
