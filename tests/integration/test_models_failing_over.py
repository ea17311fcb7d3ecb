"""A model that fails, and the next one: what is tried, what is said of it, how long it is waited for (item 1, item 7)."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from model_stage import Purse

from remit.core.errors import Unavailable
from remit.models.client import BREAKERS, FAILURES, PAUSE_SECONDS, Models
from remit.models.messages import RESTART, Asked, Question, Said
from remit.settings.values import ModelAddress, Settings
from remit.testing.models import Cut, Drip, Fail, Say, ScriptedModels, Silence
from support.pace import allowed


@pytest.fixture(autouse=True)
def setting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SCRIPTED_KEY", "sk-scripted-77aa55")
    BREAKERS._states.clear()
    yield
    BREAKERS._states.clear()


def chain(*servers: ScriptedModels | str, idle: float = 10.0, **more: Any) -> Models:
    """Models `m1`, `m2`, … at these servers, in this order."""
    tables = {}
    for number, server in enumerate(servers, 1):
        url = server if isinstance(server, str) else server.openai_url
        tables[f"m{number}"] = ModelAddress(kind="openai", url=url, model="scripted", key_variable="SCRIPTED_KEY", **more)
    return Models(Settings(model=tuple(tables), models=tables, model_idle_seconds=idle))


async def ask(models: Models, purse: Purse | None = None, **more: Any) -> Asked:
    return await models.ask(purse or Purse(), Question(choice=models.choice(), messages=[Said(text="Say something.")], **more))


@pytest.mark.parametrize(
    ("turn", "words"),
    [
        (Fail(401, "invalid x-api-key"), "SCRIPTED_KEY"),
        (Fail(404, "no such model"), "no model 'scripted'"),
        (Fail(500, "boom"), "it failed (500). It says: boom"),
        (Fail(400, "bad request"), "refused the request"),
        (Fail(307, headers={"location": "http://127.0.0.1:1/"}), "leads elsewhere"),
        (Cut(), "broke off"),
        (Cut("Half a sentence, no more of it"), "broke off"),
        (Silence(), "said nothing for 0.3 s"),
        (Fail(429, "slow down", retry_after=600), "rate limit"),
    ],
)
async def test_the_next_one_is_asked_and_told_why(turn: Any, words: str) -> None:
    heard: list[str] = []
    async with ScriptedModels([turn]) as bad, ScriptedModels([Say("Here I am.")]) as good:
        models = chain(bad, good, idle=0.3)
        asked = await ask(models, hear=heard.append)
        await models.close()
    assert asked.reply.text == "Here I am."
    assert asked.reply.model == "m2"
    (tried,) = asked.tried
    assert tried.model == "m1"
    assert words in tried.fault
    assert len(bad.requests) == 1, "their clients' own retries are off"
    last = "".join(heard).rpartition(RESTART)[2]
    assert last == "Here I am."
    assert (RESTART in heard) == (isinstance(turn, Cut) and bool(turn.text))


async def test_nobody_answers_and_each_is_named() -> None:
    async with ScriptedModels([Fail(500, "first")]) as one, ScriptedModels([Fail(401, "second")]) as two:
        models = chain(one, "http://127.0.0.1:9/v1", two)
        with pytest.raises(Unavailable) as failed:
            await ask(models)
        await models.close()
    error = failed.value
    assert error.code == "AGENT_UNAVAILABLE"
    assert "m1: it failed (500)" in str(error)
    assert "m2: nobody answers at http://127.0.0.1:9/v1" in str(error)
    assert "m3: its key was refused (401)" in str(error)
    assert "remit doctor" in error.advice


@pytest.mark.parametrize(
    ("kind", "status"),
    [("anthropic", 429), ("openai", 429), ("openai-responses", 429), ("google", 429), ("anthropic", 529), ("google", 503)],
)
async def test_one_that_is_busy_is_asked_once_more(kind: Any, status: int) -> None:
    purse = Purse()
    async with ScriptedModels([Fail(status, "busy", retry_after=0.05), Say("Now.")]) as server:
        url = server.openai_url if kind.startswith("openai") else server.base_url
        table = ModelAddress(kind=kind, url=url, model="scripted", key_variable="SCRIPTED_KEY")
        models = Models(Settings(model=("m",), models={"m": table}))
        began = time.monotonic()
        asked = await ask(models, purse)
        await models.close()
    assert asked.reply.text == "Now."
    assert len(server.requests) == 2
    assert time.monotonic() - began < allowed(8)
    assert "Asked again" in purse.said[0]


async def test_one_that_stays_busy_is_asked_twice_and_no_more() -> None:
    async with ScriptedModels([Fail(429, "busy", retry_after=0.01)]) as server:
        models = chain(server)
        with pytest.raises(Unavailable, match="rate limit"):
            await ask(models)
        await models.close()
    assert len(server.requests) == 2


async def test_a_drip_is_no_silence_and_a_silent_stream_is() -> None:
    """A byte now and then keeps a model alive; the deadline still holds."""
    async with ScriptedModels([Drip("One word after the other, slowly. " * 3, seconds=0.9)]) as server:
        models = chain(server, idle=0.5)
        asked = await ask(models)
        await models.close()
    assert asked.reply.text.startswith("One word")
    async with ScriptedModels([Drip("One word after the other, slowly. " * 3, seconds=60)]) as server:
        models = chain(server, idle=0.2)
        with pytest.raises(Unavailable, match="said nothing"):
            await ask(models)
        await models.close()


async def test_one_that_keeps_failing_is_passed_over_and_then_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(BREAKERS, "_clock", lambda: now[0])
    answers: list[Any] = [Fail(500)]
    async with ScriptedModels(lambda _: answers[0]) as bad, ScriptedModels([Say("Here.")]) as good:
        models = chain(bad, good)
        for _ in range(FAILURES):
            await ask(models)
        assert len(bad.requests) == FAILURES
        asked = await ask(models)
        assert len(bad.requests) == FAILURES
        assert "passed over" in asked.tried[0].fault
        now[0] += 31
        await ask(models)
        assert len(bad.requests) == FAILURES + 1
        await ask(models)
        assert len(bad.requests) == FAILURES + 1, "one try, then it waits again"
        answers[0], now[0] = Say("Well again."), now[0] + 31
        assert (await ask(models)).reply.text == "Well again."
        assert (await ask(models)).reply.model == "m1"
        await models.close()


async def test_a_second_model_whose_pause_is_over_is_asked_when_the_first_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    now, turns = [0.0], {"first": Fail(500), "second": Fail(500)}
    monkeypatch.setattr(BREAKERS, "_clock", lambda: now[0])
    async with ScriptedModels(lambda _: turns["first"]) as first, ScriptedModels(lambda _: turns["second"]) as second:
        models = chain(first, second)
        for _ in range(FAILURES):
            with pytest.raises(Unavailable):
                await ask(models)
        now[0] += PAUSE_SECONDS + 1
        turns["first"], turns["second"] = Say("First."), Say("Second.")
        assert (await ask(models)).reply.text == "First."
        turns["first"] = Fail(500)
        assert (await ask(models)).reply.text == "Second.", "the first was asked all the time, and the second has had its pause"
        await models.close()


async def test_the_breaker_never_leaves_nobody() -> None:
    answers: list[Any] = [Fail(500)]
    async with ScriptedModels(lambda _: answers[0]) as server:
        models = chain(server)
        for _ in range(FAILURES + 1):
            with pytest.raises(Unavailable):
                await ask(models)
        answers[0] = Say("Well again.")
        assert (await ask(models)).reply.text == "Well again."
        await models.close()


async def test_a_question_it_cannot_take_does_not_speak_against_a_model() -> None:
    async with ScriptedModels([Fail(400, "prompt is too long")]) as server:
        models = chain(server)
        for _ in range(FAILURES + 1):
            with pytest.raises(Unavailable, match=r"400"):
                await ask(models)
        await models.close()
    assert not BREAKERS._states


async def test_one_without_its_key_is_passed_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    async with ScriptedModels([Say("Here.")]) as server:
        table = ModelAddress(kind="openai", url=server.openai_url, model="scripted")
        models = Models(Settings(model=("anthropic:claude-sonnet-5", "m"), models={"m": table}))
        asked = await ask(models)
        await models.close()
    assert asked.reply.model == "m"
    assert "ANTHROPIC_API_KEY" in asked.tried[0].fault
    assert "authorization" not in server.requests[0].headers or "no-key" in server.requests[0].headers["authorization"]


@pytest.mark.parametrize("url", ["not a url", "http://", "ftp://host/v1", "http://[::1"])
async def test_an_address_that_is_none_is_told_before_anybody_is_asked(url: str) -> None:
    with pytest.raises(Unavailable) as wrong:
        chain(url).choice()
    assert wrong.value.code == "TOOL_UNAVAILABLE"
    assert 'url = "http://' in wrong.value.advice


async def test_what_a_listener_raises_is_not_taken_for_the_models_fault() -> None:
    def hear(words: str) -> None:
        raise KeyError(words)

    async with ScriptedModels([Say("Here I am.")]) as one, ScriptedModels([Say("Me too.")]) as two:
        models = chain(one, two)
        with pytest.raises(KeyError):
            await ask(models, hear=hear)
        await models.close()
    assert not two.requests
