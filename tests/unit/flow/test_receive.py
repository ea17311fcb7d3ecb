"""Finding the return in an answer: object, JSON, fence, prose, file. No answer raises."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from remit.runtime.receive import read_answer
from support.pace import allowed

FIELDS: dict[str, Any] = {"status": "completed", "summary": "It is done. All is well.", "artifacts": [], "metadata": {}}
TEXT = json.dumps(FIELDS)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_json_text_is_decoded_from_any_encoding(encoding: str) -> None:
    received = read_answer(TEXT.encode(encoding))
    assert (received.found, received.candidate) == ("json", FIELDS)


def test_last_fenced_block_wins() -> None:
    first = TEXT.replace("done", "begun")
    received = read_answer(f"See:\n```json\n{first}\n```\nand then\n```json\n{TEXT}\n```\nThat is all {{really}}.")
    assert (received.found, received.candidate) == ("fence", FIELDS)


def test_fences_of_other_languages_are_skipped() -> None:
    received = read_answer(f"```python\nx = {{}}\n```\n{TEXT}\nBye.")
    assert (received.found, received.candidate) == ("prose", FIELDS)


@pytest.mark.parametrize(
    "prose",
    [
        "I am done: {} Good bye.",
        "Use {{x}} or {{ }} first. {} and {{y}}",
        'He said "use {{" and left. {}',
        'A stray {{" brace. {}',
        '{}\nP.S. {{"note": 1}}',
        "if (x) {{ return {} }}",
    ],
)
def test_last_object_in_prose_that_looks_like_a_return_is_found(prose: str) -> None:
    received = read_answer(prose.format(TEXT))
    assert (received.found, received.candidate) == ("prose", FIELDS)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('So: {"status": "completed", "data": {"status": "failed", "summary": "A child."}, oops} bye', ""),
        ("I could not do it.", "no JSON object was found in the answer"),
        ('{"status": "completed",}', "line 1 column"),
    ],
    ids=["part of a broken return", "prose", "syntax error"],
)
def test_answer_without_a_return_is_a_fault_and_is_kept(text: str, fault: str) -> None:
    received = read_answer(text)
    assert (received.candidate, received.original) == (None, text)
    (found,) = received.faults
    assert found.startswith("Return is not valid JSON: ")
    assert fault in found


def test_return_file_is_the_last_resort(tmp_path: Path) -> None:
    file = tmp_path / "return.json"
    file.write_text(TEXT)
    assert read_answer("All done, see the file.", file).found == "file"
    assert read_answer('{"ok": true}', file).found == "file"
    assert read_answer(TEXT, file).found == "json"
    assert read_answer(None, file).candidate == FIELDS


def test_special_or_oversized_return_file_is_ignored(tmp_path: Path) -> None:
    pipe, link, large = tmp_path / "pipe", tmp_path / "link", tmp_path / "large"
    os.mkfifo(pipe)
    (tmp_path / "real").write_text(TEXT)
    link.symlink_to(tmp_path / "real")
    large.write_text(TEXT + " " * (5 << 20))
    for path in (pipe, link, large, tmp_path / "absent", tmp_path):
        assert read_answer("prose", path).found == "nothing"


N = 300_000


@pytest.mark.parametrize(
    "text",
    [
        "{" * N,
        "{" * (N // 2) + "}" * (N // 2),
        '{"' * (N // 2),
        '{"' + '\\"' * (N // 2) + "\\",
        "`" * N,
        "```\n" * (N // 4),
        "[" * 100_000,
        '{"status":' * (N // 10),
        '{"status":' * 900 + "[" + "1," * (N // 2),
        '{"status":1,} ' * (N // 14),
        "{" + " " * N + "{",
        ('"status"' + " " * 1000) * (N // 1000),
    ],
    ids=range(12),
)
def test_hostile_texts_are_parsed_in_linear_time(text: str) -> None:
    began = time.monotonic()
    read_answer(text)
    assert time.monotonic() - began < allowed(3)  # quadratic time would be an hour
