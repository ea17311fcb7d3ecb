"""Rules for blocks of commands and data in documents: tested or with a reason, well-formed, existing commands and options."""

import json
import os
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from documented_commands import COMMAND_LANGUAGES, DOCUMENTS, PARTS, TESTED_ELSEWHERE, Part, simple_commands
from documents import ROOT

from support import cli
from support.cli import ALIASES

DATA: dict[str, Callable[[str], Any]] = {"json": json.loads, "yaml": yaml.safe_load, "toml": tomllib.loads}
ABSENT = "cannot carry it out|cannot be started|which is not an agent|has no server|is not set|set model|add model"
"""Problems of settings that are shown alone."""


def test_every_block_is_tested_or_gives_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    count: Counter[str] = Counter()
    for part in [part for all_parts in PARTS.values() for part in all_parts]:
        assert part.kind in ("", "file", "output", "project", "not run"), f"{part.place}: {part.kind}"
        if part.kind == "not run":
            assert len(part.note) > 10, f"{part.place}: the reason is missing"
        elif part.kind == "":
            commands = [line for line in part.text.splitlines() if re.match(r"(\$ )?(remit|curl|pip|git|npm|make) ", line)]
            assert part.language in COMMAND_LANGUAGES or not commands, f"{part.place}: commands in a block of {part.language or 'text'}"
            assert part.language != "python", f"{part.place}: a Python block names its file"
        count[f"{part.language or 'text'}, {part.kind or 'run or checked'}"] += 1
    with capsys.disabled():
        print(f"\nblocks of the documents: {dict(sorted(count.items()))}")


@pytest.mark.parametrize(
    "part", [p for all_parts in PARTS.values() for p in all_parts if p.language in DATA and not p.kind], ids=lambda p: p.place
)
def test_data_blocks_are_well_formed_and_settings_are_known(part: Part, tmp_path: Path) -> None:
    DATA[part.language](part.text)
    if part.language == "toml":
        (tmp_path / "remit.toml").write_text(part.text)
        environment = {**os.environ, "REMIT_DESCRIBE_SECONDS": "1"}
        assert (done := cli.run("config", cwd=tmp_path)).code == 0, done.stderr
        problems = cli.run("agents", "--json", cwd=tmp_path, env=environment).json()["problems"]
        assert [problem for problem in problems if not re.search(ABSENT, problem)] == []


def command_lines() -> Iterator[tuple[str, list[str]]]:
    for part in [part for all_parts in PARTS.values() for part in all_parts if part.language in COMMAND_LANGUAGES]:
        for command, _ in part.commands:
            for message in simple_commands(command):
                yield f"{part.place}: {command}", message
    for document in DOCUMENTS:
        text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
        for command in re.findall(r"(?<!`)`(remit [a-z][^`\n]*)`", text):
            with suppress(ValueError):  # an unclosed quotation mark
                yield f"{document.name}: {command}", shlex.split(command)


def unknown_parts(lines: Iterable[tuple[str, list[str]]]) -> list[str]:
    """Command lines, with their places, that use a command or an option that remit does not have."""
    options = {name: {opt for parameter in command.params for opt in parameter.opts} for name, command in cli.every_command().items()}
    own = {"about", "fix"}  # commands from files, in a guide and in a docstring
    wrong = []
    for place, (program, *message) in lines:
        name = message[0] if message else ""
        if program != "remit" or not re.fullmatch(r"[a-z]+", name) or name in own | ALIASES.keys():
            continue
        passed = {token.partition("=")[0] for token in message[1:] if re.match(r"--[a-z]", token)} - {"--help"}
        if name not in options or not passed <= options[name]:
            wrong.append(place)
    return wrong


def test_documented_command_lines_use_existing_commands_and_options() -> None:
    assert unknown_parts(command_lines()) == []


def advised() -> Iterator[tuple[str, list[str]]]:
    """Command lines in messages of remit: in backticks, or a whole advice."""
    for path in (ROOT / "src/remit").rglob("*.py"):
        text = path.read_text()
        for line in re.findall(r"`(remit [a-z][^`\n]*)`", text) + re.findall(r"(?:Next|next|Then|approve): (remit [a-z][^\"\n]*)", text):
            yield f"{path.relative_to(ROOT)}: {line}", re.sub(r"[\"'.;,)]", " ", line).split()


def test_command_lines_in_messages_use_existing_commands_and_options() -> None:
    found = list(advised())
    assert len(found) > 100
    assert unknown_parts(found) == []


def test_excluded_commands_are_tested_elsewhere() -> None:
    for command, file in TESTED_ELSEWHERE.items():
        assert command.split()[-1] in (ROOT / file).read_text(), command
