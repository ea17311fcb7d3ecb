"""Files of local models. No model is loaded; tests/real/test_local_model.py runs one."""

import os
from pathlib import Path

import pytest

from remit import Unavailable
from remit.models.local import find_weights


def test_weights_are_found_by_path(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF weights")
    assert find_weights("m.gguf", tmp_path) == tmp_path / "m.gguf"
    assert find_weights(str(tmp_path / "m.gguf"), Path("/")) == tmp_path / "m.gguf"


@pytest.mark.parametrize("model", ["no/such.gguf", ".", "bad.gguf", "pipe.gguf"])
def test_missing_or_invalid_weights_are_reported_with_advice(tmp_path: Path, model: str) -> None:
    (tmp_path / "bad.gguf").write_text("hello")
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(Unavailable) as raised:
        find_weights(model, tmp_path)
    assert raised.value.code == "TOOL_UNAVAILABLE"
    assert "GGUF" in raised.value.advice
