"""The format instruction."""

from pathlib import Path

import pytest

from remit import check_return
from remit.runtime.return_format import format_instruction

SESSION = "sess_1700000000_abc123"


@pytest.mark.parametrize("agent", ["digest", 'odd "name" {x}\n', "worker.read_file"])
def test_example_passes_validation_and_has_the_session_id(agent: str, tmp_path: Path) -> None:
    text = format_instruction(SESSION, agent, 2, ("orchestrator", agent))
    result = check_return(text, SESSION, tmp_path)
    assert (result.metadata.agent_type, result.metadata.delegation_path) == (agent, ("orchestrator", agent))
    assert result.warnings == ()
    assert text.rstrip().endswith("```")


def test_instruction_names_every_status_and_type() -> None:
    text = format_instruction(SESSION, "digest", 1, ("digest",))
    words = "completed partial failed blocked report plan implementation summary documentation data"
    assert all(word in text for word in words.split())
