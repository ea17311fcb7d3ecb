"""The assistant and its commands with hostile words, files and models: what must hold whatever comes (issue 6, item 4)."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import assistant_stage
import pytest
from chat_stage_set import echoing_project

from remit import agent
from remit.assistant.asking import ask
from remit.assistant.conversations import Conversations
from remit.assistant.lines import Spent
from remit.cli.ask import ask as ask_command
from remit.cli.chat_prompt import HISTORY, _history, history_file
from remit.cli.conversations import _print
from remit.cli.exits import Exit
from remit.flow.context import Context
from remit.models.messages import Said
from remit.testing.models import Call, Garbled, Say, Stray


@agent("thinker")
async def thinker(ctx: Context) -> str:
    """Asks a model of its own."""
    ctx.spend(tokens=1000, cost=0.5)
    return "thought"


project = partial(assistant_stage.project, agents=[thinker], prices={"scripted": {"input": 1.0, "output": 2.0}})


async def test_a_conversation_that_grows_is_compacted_for_the_model_kept_whole_and_counted(tmp_path: Path) -> None:
    """What it spends is that of its answers, of its summaries and of what it handed on."""

    def script(request: Any) -> Any:
        if "keep the memory" in request.system:
            return Say("SUMMARY: the person counts.")
        if "Number 0" in request.asked and not request.results:
            return Call("delegate", target="thinker", parameters={})
        return Say(f"Noted. {'x ' * 600}")

    async with project(tmp_path, script, assistant={"compact_tokens": 6000}) as (remit, models):
        conversation = None
        for number in range(8):
            returned = await ask(remit, f"Number {number}. {'y ' * 800}", conversation)
            assert returned.ok, returned
            conversation = returned.data["conversation"]
        questions = len(models.requests)
        *_, last = (request for request in models.requests if "keep the memory" not in request.system)
    assert "SUMMARY: the person counts." in last.messages[1].text
    assert "Number 0." in last.text
    assert "Number 7." in last.messages[-1].text
    assert len(last.messages) < 14
    kept = Conversations(tmp_path).open(conversation or "")
    assert [message.text.partition(".")[0] for message in kept.messages if isinstance(message, Said)] == [f"Number {n}" for n in range(8)]
    assert kept.compacted is not None
    assert kept.compacted.by == "scripted"
    spent = [line for line in kept.lines if isinstance(line, Spent)]
    assert sum(line.tokens for line in spent) == 1000 + 120 * questions
    assert sum(line.cost or 0.0 for line in spent) == pytest.approx(0.5 + questions * 0.00014)


async def test_errors_are_held_to_the_limit_also_as_some_providers_are_sent_them(tmp_path: Path) -> None:
    """Where an API has no mark for errors they go out as `{"error":"…"}`, with each quote escaped."""
    raw = 'RAW"\\' * 2000
    calls = [
        Call("delegate", target=raw, parameters={}),
        Call("delegate", target="echo", parameters={raw: 1}),
        Call("delegate", target="echo", parameters={"text": [raw]}),
        Garbled("delegate", raw),
        Stray(raw, text=raw),
    ]
    async with project(tmp_path, [calls, Say("Well.")], assistant={"result_characters": 600}) as (remit, models):
        assert (await ask(remit, "Go.")).ok
        shown = models.requests[-1].results
    assert len(shown) == len(calls)
    assert max(map(len, shown)) <= 600


def test_bytes_that_are_no_text_are_asked_as_replacement_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with echoing_project(tmp_path):
        assert ask_command(message=["a\udcffb"], root=tmp_path) is Exit.OK
    assert capsys.readouterr().out == "You said **a�b**.\n"


def test_the_title_of_a_file_from_anywhere_does_nothing_to_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Conversations(tmp_path).new("Fine")
    with made.path.open("a") as file:
        file.write(json.dumps({"kind": "title", "at": 1, "title": "T\x1b]0;mine\x07\x1b[2J\u202eturned"}) + "\n")
    read = Conversations(tmp_path).open("latest")
    assert read.title == "T ]0;mine [2J turned"
    _print(read)
    assert "\x1b" not in capsys.readouterr().out


def test_what_is_typed_is_remembered_without_keys_and_whatever_bytes_it_has(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2" * 9
    file = history_file(tmp_path)
    assert file is not None
    history = _history(file)
    history.store_string(f"use {secret}")
    history.store_string("half \udcff")
    kept = (tmp_path / HISTORY).read_text()
    assert secret not in kept
    assert "use [redacted]" in kept
    assert "half �" in kept
