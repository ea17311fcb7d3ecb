"""Files from the answer of a model: hostile answers."""

import json

import pytest

from remit import Failed
from remit.builtin.coder.generate import check_path, read_files
from remit.builtin.coder.syntax import parse_files


def answer(**texts: str) -> str:
    return json.dumps({"files": [{"path": path, "content": text} for path, text in texts.items()], "notes": "n\udc00"})


@pytest.mark.parametrize(
    "text", ["a.py\n```py\nx = 1\n```\n" + " " * 400_000, "``` a.py\n" * 40_000, "{" * 400_000, '{"files": [7, {"path": 1}]}']
)
def test_answer_without_files_is_refused_in_linear_time(text: str) -> None:
    with pytest.raises(Failed):
        read_files(text)


@pytest.mark.parametrize(
    "name",
    [
        ".Claude/settings.json", ".mcp.json", ".opencode/agent/x.md", ".husky/pre-commit", ".git./config", "GIT~1/hooks/x", ".remit/x",
        "../out.py", "/abs.py", "a//b.py", "a/../../b.py", ".git/hooks/pre-commit", "nul\0.py", "C:\\x.py", "~/x.py", "",
        "a" * 250, "é" * 150, "a\nb.py", " a.py/ b", "a\u202eb.py", "a/./b.py", "\ud800.py",
    ],
)  # fmt: skip
def test_dangerous_and_impossible_file_names_are_refused(name: str) -> None:
    with pytest.raises(Failed):
        check_path(name)


async def test_file_that_hangs_its_parser_costs_only_itself() -> None:
    found = await parse_files({"A.java": "a<" * 90_000, "ok.toml": "a = 1\n", "bad.js": "let x = (;\n"}, 2.0)
    assert "A.java" not in found
    assert {path for path, fault in found.items() if fault is not None} <= {"bad.js"}


async def test_file_that_crashes_its_parser_costs_only_itself() -> None:
    deep = "{}" + "-" * 900_000 + "1\n"
    found = await parse_files({"deep.py": deep, "ok.toml": "a = 1\n", "bad.json": "{"}, 5.0)
    assert found.keys() >= {"ok.toml", "bad.json"}
    assert {path for path, fault in found.items() if fault is not None} - {"deep.py"} == {"bad.json"}
