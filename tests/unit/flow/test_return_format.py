"""The format instruction."""

from pathlib import Path

import pytest

from remit import check_return
from remit.runtime.output_schema import check_schema
from remit.runtime.return_format import format_instruction, return_schema

SESSION = "sess_1700000000_abc123"
SCHEMA = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer", "minimum": 0}}}


@pytest.mark.parametrize("agent", ["digest", 'odd "name" {x}\n', "worker.read_file"])
def test_example_passes_validation_and_has_the_session_id(agent: str, tmp_path: Path) -> None:
    text = format_instruction(SESSION, agent, 2, ("orchestrator", agent))
    result = check_return(text, SESSION, tmp_path)
    assert (result.metadata.agent_type, result.metadata.delegation_path) == (agent, ("orchestrator", agent))
    assert result.warnings == ()
    assert text.rstrip().endswith("```")


def test_instruction_names_every_status_and_type_and_shows_the_schema() -> None:
    place = (SESSION, "census", 1, ("census",))
    text = format_instruction(*place, SCHEMA)
    words = "completed partial failed blocked report plan implementation summary documentation data"
    assert all(word in text for word in [*words.split(), '"minimum": 0'])
    assert "{schema}" not in text
    held = return_schema(*place, SCHEMA)
    assert held["properties"]["metadata"]["properties"]["session_id"]["enum"] == [SESSION]
    assert check_schema(held)["$defs"] == SCHEMA["$defs"]
