"""The directory of agents: registration, files, plugins."""

import pytest

from remit import Misused, agent
from remit.agents.directory import Directory
from remit.testing import Scripted


async def _one() -> None: ...


def directory() -> Directory:
    return Directory(lambda declared: declared)


def test_two_agents_with_one_name_are_refused() -> None:
    known = directory()
    known.register(agent("a")(_one))
    known.register(agent("a")(_one))
    with pytest.raises(Misused, match="Two agents are named 'a'"):
        known.register(Scripted("a"))
    with pytest.raises(Misused, match="is not an agent"):
        known.register(_one)  # type: ignore[arg-type]
    assert known.find("b") is None
