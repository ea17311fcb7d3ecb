"""`remit models`, and the checks of models by `remit doctor`, against the scripted model server."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from remit.testing import Fail, Say, ScriptedModels, Silence
from support import cli
from support.pace import allowed

models, try_each, doctor = (cli.typed(name) for name in ("models", "models test", "doctor"))
KEY = "sk-" + "not-a-real-key-" * 2


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("SCRIPTED_KEY", KEY)


def table(name: str, url: str) -> str:
    return f'[models.{name}]\nkind = "openai"\nurl = "{url}"\nmodel = "scripted"\nkey_variable = "SCRIPTED_KEY"\n'


def write_settings(folder: Path, *parts: str) -> None:
    (folder / "remit.toml").write_text("\n".join(parts))


def document_of(capfd: pytest.CaptureFixture[str], command: Any, root: Path, *given: Any, **named: Any) -> dict[str, Any]:
    command(root, *given, as_json=True, **named)
    document: dict[str, Any] = json.loads(capfd.readouterr().out)
    return document


def test_models_without_a_model_prints_how_to_configure_one(tmp_path: Path) -> None:
    for words in (["models"], ["models", "list"], ["models", "test"]):
        done = cli.run(*words, cwd=tmp_path)
        assert done.code == 0
        assert "No language model is configured" in done.stdout
        assert "local:/path/to/file.gguf" in done.stdout


def test_list_shows_key_variables_and_never_a_key(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("COLUMNS", "140")
    write_settings(
        tmp_path, 'model = ["anthropic:claude-sonnet-5", "own", "antropic:claude"]', table("own", "http://127.0.0.1:9/v1"),
        '[models.gone]\nkind = "local"\nmodel = "no.gguf"', "[prices.own]\ninput = 1.5\noutput = 2.5",
    )  # fmt: skip
    models(tmp_path)
    shown = capfd.readouterr().out
    assert "SCRIPTED_KEY is set" in shown
    assert "ANTHROPIC_API_KEY not set" in shown
    assert "1.50 in, 2.50 out" in shown
    assert KEY not in shown
    document = document_of(capfd, models, tmp_path)
    assert KEY not in json.dumps(document)
    first, own, unknown, gone = document["models"]
    assert "antropic" in unknown["fault"]
    assert (first["place"], first["key_set"], first["price"]["input"]) == (1, False, 2.0)
    assert (own["place"], own["key_variables"], own["price"]["output"]) == (2, ["SCRIPTED_KEY"], 2.5)
    assert (gone["place"], "no.gguf" in gone["fault"]) == (None, True)
    assert {one["variable"] for one in document["keys"]} == {"OPENAI_API_KEY"}


async def test_models_test_asks_each_model_separately(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async with (
        ScriptedModels(lambda _: Say("Yes.")) as good,
        ScriptedModels(lambda _: Fail(500)) as bad,
        ScriptedModels(lambda _: Silence()) as silent,
    ):
        write_settings(
            tmp_path, 'model = "good"\nmodel_idle_seconds = 0.6',
            table("good", good.openai_url), table("bad", bad.openai_url), table("silent", silent.openai_url),
        )  # fmt: skip
        document = await asyncio.to_thread(document_of, capfd, try_each, tmp_path, seconds=3.0)
        one = await asyncio.to_thread(document_of, capfd, try_each, tmp_path, "good")
        before = len(good.requests)
        offline = await asyncio.to_thread(document_of, capfd, doctor, tmp_path)
        assert len(good.requests) == before
        checked = await asyncio.to_thread(document_of, capfd, doctor, tmp_path, is_online=True)
    answers = {each["name"]: each for each in document["models"]}
    assert {name: each["answers"] for name, each in answers.items()} == {"good": True, "bad": False, "silent": False}
    assert (answers["good"]["said"], answers["good"]["input_tokens"] > 0) == ("Yes.", True)
    assert answers["silent"]["seconds"] < allowed(5)
    assert KEY not in json.dumps(document)
    assert [each["name"] for each in one["models"]] == ["good"]
    findings = {each["name"]: each for each in checked["findings"] if each["part"] == "models"}
    assert {name: findings[name]["mark"] for name in answers} == {"good": "ok", "bad": "worse", "silent": "worse"}
    assert "price is unknown" in findings["good"]["found"]
    assert {one["found"] for one in offline["findings"] if one["part"] == "models"} == {"configured; not contacted"}
    assert KEY not in str((checked, offline))
