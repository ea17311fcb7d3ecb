"""Messages over A2A from unknown senders are parsed or refused with a coded error."""

import contextlib
from pathlib import PurePosixPath
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from remit import Misused
from remit.core.request_metadata import read_position

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(JSON | st.fixed_dictionaries({}, optional={"depth": JSON, "path": JSON, "timeLeftMs": JSON}))
def test_extension_metadata_is_parsed_or_refused(value: Any) -> None:
    with contextlib.suppress(Misused):
        position = read_position(value)
        assert 0 <= position.depth <= 1000
        assert all(isinstance(name, str) and name for name in position.path)
        assert position.seconds_left is None or 0 < position.seconds_left <= 10**9


@given(st.text(max_size=300), st.integers(1, 100))
def test_file_name_from_a_remote_agent_stays_in_its_folder(name: str, number: int) -> None:
    from remit.agents.a2a.task import safe_name

    safe = safe_name(name, number)
    assert safe.startswith(f"{number:03d}-")
    assert PurePosixPath(safe).name == safe
    assert len(safe) <= 100
    assert safe.isprintable()
    assert ".." not in safe.split("-", 1)[1][:2]


@given(st.lists(st.tuples(st.sampled_from(["text", "data", "raw", "url"]), JSON), max_size=4), JSON)
def test_any_message_is_parsed_or_refused(parts: list[tuple[str, Any]], skill: Any) -> None:
    from a2a.types import Message, Part, SendMessageRequest
    from a2a.utils.errors import A2AError

    from remit.server.a2a.messages import arguments_of, read_message
    from remit.system.protobuf_values import struct_of, text_of, value_of

    def part(kind: str, value: Any) -> Part:
        given = {"text": text_of(str(value)), "data": value_of(value), "raw": b"x", "url": "http://x/"}
        return Part(**{kind: given[kind]})

    message = Message(message_id="m", parts=[part(kind, value) for kind, value in parts], metadata=struct_of({"skill": skill}))
    with contextlib.suppress(Misused, A2AError):
        arguments = arguments_of(read_message(SendMessageRequest(message=message)), [], has_assistant=False)
        assert arguments.keys() <= {"target", "operation", "parameters", "timeout", "priority", "budget", "idle"}
