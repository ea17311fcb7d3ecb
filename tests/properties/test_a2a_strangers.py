"""What strangers write over A2A, whatever it is: read or refused in words, never raised as something else (issue 7 item 2)."""

import contextlib
from pathlib import PurePosixPath
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from remit.agents.proto.metadata import CallerPosition, read_position
from remit.core.errors import Misused

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=8)


@settings(deadline=None)  # what it imports takes longer than any try
@given(JSON | st.fixed_dictionaries({}, optional={"depth": JSON, "path": JSON, "timeLeftMs": JSON}))
def test_extension_metadata_is_parsed_or_refused(value: Any) -> None:
    with contextlib.suppress(Misused):
        told = read_position(value)
        assert 0 <= told.depth <= 1000
        assert all(isinstance(name, str) and name for name in told.path)
        assert told.seconds_left is None or 0 < told.seconds_left <= 10**9


@settings(deadline=None)  # what it imports takes longer than any try
@given(st.integers(0, 1000), NAMES, st.floats(0.01, 1e6) | st.none())
def test_what_one_remit_writes_the_other_reads(depth: int, path: list[str], left: float | None) -> None:
    from remit.agents.proto.values import dict_of, struct_of

    told = CallerPosition(depth=depth, path=tuple(path), seconds_left=left)
    read = read_position(dict_of(struct_of(told.to_dict())))
    assert read.depth == depth
    assert len(read.path) == len(path)
    assert (read.seconds_left is None) == (left is None)


@settings(deadline=None)  # what it imports takes longer than any try
@given(st.text(max_size=300), st.integers(1, 100))
def test_file_name_from_a_remote_agent_stays_in_its_folder(name: str, number: int) -> None:
    from remit.agents.a2a.task import safe_name

    safe = safe_name(name, number)
    assert safe.startswith(f"{number:03d}-")
    assert PurePosixPath(safe).name == safe
    assert len(safe) <= 100
    assert safe.isprintable()
    assert ".." not in safe.split("-", 1)[1][:2]


@settings(deadline=None)  # what it imports takes longer than any try
@given(st.lists(st.tuples(st.sampled_from(["text", "data", "raw", "url"]), JSON), max_size=4), JSON)
def test_any_message_is_read_message_or_refused_in_words(parts: list[tuple[str, Any]], skill: Any) -> None:
    from a2a.types import Message, Part, SendMessageRequest
    from a2a.utils.errors import A2AError

    from remit.agents.proto.values import struct_of, text_of, value_of
    from remit.server.a2a.messages import arguments_of, read_message

    def part(kind: str, value: Any) -> Part:
        given = {"text": text_of(str(value)), "data": value_of(value), "raw": b"x", "url": "http://x/"}
        return Part(**{kind: given[kind]})

    message = Message(message_id="m", parts=[part(kind, value) for kind, value in parts], metadata=struct_of({"skill": skill}))
    with contextlib.suppress(Misused, A2AError):
        arguments = arguments_of(read_message(SendMessageRequest(message=message)), [], has_assistant=False)
        assert arguments.keys() <= {"target", "operation", "parameters", "timeout", "priority", "budget", "idle"}
