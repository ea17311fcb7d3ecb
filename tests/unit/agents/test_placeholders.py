"""Placeholders in declared commands, and commands that are refused because they would execute the value."""

import pytest

from remit import Misused
from remit.agents.definition import definition_of
from remit.agents.placeholders import filled

FILLED = [
    ("{path}", ["a b"]),
    ("--file={path}", ["--file=a b"]),
    ("{many}", ["1", "two", "true"]),
    ("x{many}", ['x[1, "two", true]']),
    ("{none}", []),
    ("{number}", ["3"]),
    ("{table}", ['{"ä": 1}']),
    ("{{path}}", ["{path}"]),
    ("{{{path}}}", ["{a b}"]),
    ("{{", ["{"]),
    ("}}", ["}"]),
    ("{}", ["{}"]),
    ("{ print $1 }", ["{ print $1 }"]),
    ("${path}", ["${path}"]),
    ('{"a": {"b": "{path}"}}', ['{"a": {"b": "a b"}}']),
    ("", [""]),
]


@pytest.mark.parametrize(("word", "arguments"), FILLED)
def test_placeholders_are_substituted(word: str, arguments: list[str]) -> None:
    values = {"path": "a b", "many": [1, "two", True], "none": [], "number": 3, "table": {"ä": 1}}
    assert filled([word], values) == arguments


def test_substituted_values_are_not_substituted_again() -> None:
    assert filled(["{a}", "{b}"], {"a": "{b} {{", "b": "$(id)"}) == ["{b} {{", "$(id)"]


CODE = [
    "sh -c 'echo {task}'",
    "bash -lc 'cat {path}'",
    "bash -euo pipefail -c 'cat {path}'",
    "bash -c -x {path}",
    "bash -c -- {path}",
    "/bin/dash -c {prompt}",
    "zsh -c {x}",
    "ksh -c {x}",
    "fish --command={x}",
    "env sh -c {x}",
    "/usr/bin/env -i A=1 bash -c {x}",
    "env -S 'sh -c {x}'",
    "env {x} ls",
    "timeout 5 sh -c {x}",
    "docker exec box sh -c {x}",
    "find . -exec sh -c 'ls {x}' ;",
    "sh -c 'cat {prompt_file}'",
    "sh {x}",
    "python3.12 -Ic 'print({x})'",
    "python -c{x}",
    "node -e {x}",
    "node --eval={x}",
    "perl -ne 's/{x}//'",
    "perl -ne print {x}",
    "ruby -e {x}",
    "awk '{{print {x}}}'",
    "sed s/a/{x}/",
    "sed s/a/b/ {x}",
    "ssh host ls {x}",
    "{x}",
    "{workspace}/{x}",
    "sh",
    "env bash -s",
    "python -",
]


@pytest.mark.parametrize("command", CODE)
def test_command_that_would_execute_its_value_is_refused_with_advice(command: str) -> None:
    with pytest.raises(Misused) as raised:
        definition_of("one", {"command": command}, source="s")
    assert raised.value.message.startswith("s: command: ")
    assert '"$1"' in raised.value.message


def test_prompt_as_a_script_is_refused() -> None:
    with pytest.raises(Misused, match="executed"):
        definition_of("one", {"command": "sh -c", "prompt": "argument"}, source="s")


NO_CODE = [
    "sh -c 'echo \"$1\"' sh {task}",
    "sh -c 'echo ${HOME} {session_id}'",
    "env X={x} sh -c 'echo \"$X\"'",
    "python -c 'import sys' {x}",
    "python tool.py -c {x}",
    "python -m tool {x}",
    "node tool.js {x}",
    "perl -ne print -- {x}",
    "awk -v name={x} '{print name}' file",
    "awk -f tool.awk {x}",
    "sed s/a/b/ -- {x}",
    "sh -- {x}",
    "llm --lang python {prompt}",
    "grep {x} sh",
    "timeout 5 wc -l {x}",
]


@pytest.mark.parametrize("command", [one.replace("{print name}", "{{print name}}") for one in NO_CODE])
def test_command_that_takes_the_value_as_an_argument_is_accepted(command: str) -> None:
    definition_of("one", {"command": command}, source="s")
