"""Files of local models. No model is loaded; tests/real/test_local_model.py runs one."""

import os
from pathlib import Path

import pytest

from remit import Unavailable
from remit.models.local import find_weights


@pytest.fixture(autouse=True)
def data_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


def test_weights_are_found_by_path_or_by_name_in_the_models_folder(tmp_path: Path, data_home: Path) -> None:
    (data_home / "remit" / "models").mkdir(parents=True)
    for path in (tmp_path / "m.gguf", data_home / "remit" / "models" / "mine.gguf"):
        path.write_bytes(b"GGUF weights")
    assert find_weights("m.gguf", tmp_path) == tmp_path / "m.gguf"
    assert find_weights(str(tmp_path / "m.gguf"), Path("/")) == tmp_path / "m.gguf"
    assert find_weights("mine", tmp_path) == data_home / "remit" / "models" / "mine.gguf"


@pytest.mark.parametrize("model", ["nobody", "no/such.gguf", ".", "./", "bad.gguf", "pipe.gguf", "smollm2"])
def test_missing_or_invalid_weights_are_reported_with_advice(tmp_path: Path, model: str) -> None:
    (tmp_path / "bad.gguf").write_text("hello")
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(Unavailable) as raised:
        find_weights(model, tmp_path)
    assert raised.value.code == "TOOL_UNAVAILABLE"
    assert "GGUF" in raised.value.advice
