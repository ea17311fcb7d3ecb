"""Requests to the delegate tool are validated in a fixed order before anything runs; errors list what is allowed as data."""

from typing import Any

import pytest

from remit import DelegateError, Priority, TimeLimits, agent
from remit.agents.directory import Directory
from remit.core.delegate_requests import Catalogue, Reader


@agent("worker.read_file", timeout=30)
async def read_file(path: str, max_bytes: int = 10) -> None: ...


@agent("worker.list_files")
async def list_files(path: str) -> None: ...


@agent("coder.analyze_code")
async def analyze_code(path: str, patterns: list[str] | None = None) -> None: ...


@agent("hello")
async def hello(name: str = "you") -> None: ...


def reader(*agents: Any) -> Reader:
    directory = Directory(lambda declared: declared)
    for one in agents or (read_file, list_files, analyze_code, hello):
        directory.register(one)
    return Reader(Catalogue(directory.specs), directory.find, lambda _: TimeLimits(default_seconds=60, maximum_seconds=300))


def fault(*given: Any, **arguments: Any) -> DelegateError:
    with pytest.raises(DelegateError) as caught:
        reader().read(given[0] if given else arguments)
    return caught.value


def test_request_has_defaults() -> None:
    asked = reader().read({"target": "worker", "operation": "read_file", "parameters": {"path": "a"}})
    assert (asked.agent, asked.target, asked.operation) == ("worker.read_file", "worker", "read_file")
    assert (asked.timeout_seconds, asked.priority) == (None, Priority.NORMAL)
    assert asked.asked() == {"parameters": {"path": "a"}, "timeout": None, "priority": Priority.NORMAL}


@pytest.mark.parametrize(
    "given",
    [
        {"target": "worker", "operation": "read_file", "parameters": {"path": "a", "maxBytes": 3}},
        {"Target": "worker", "operation": "readFile", "parameters": {"path": "a", "max_bytes": 3}},
        {"target": "worker.read_file", "parameters": '{"path": "a", "maxBytes": 3}', "timeout": None},
        {"target": "worker.read_file", "operation": "read_file", "parameters": {"path": "a", "maxBytes": 3}},
    ],
)
def test_both_spellings_of_names_are_accepted(given: dict[str, Any]) -> None:
    asked = reader().read(given)
    assert (asked.agent, asked.parameters) == ("worker.read_file", {"path": "a", "max_bytes": 3})


def test_milliseconds_become_seconds() -> None:
    given = {"target": "hello", "parameters": {}, "timeout": 1500}
    assert reader().read(given).timeout_seconds == 1.5


@pytest.mark.parametrize(
    ("given", "priority"), [("low", 1), ("normal", 2), ("HIGH", 3), ("critical", 4), (0, 2), (1, 1), (2, 2), (3, 3), (4, 4), (None, 2)]
)
def test_priorities_are_names_or_numbers(given: object, priority: int) -> None:
    assert reader().read({"target": "hello", "parameters": {}, "priority": given}).priority == priority


def test_target_is_checked_first() -> None:
    found = fault(target="wroker", operation="nonsense", parameters=1, timeout="x", nonsense=1)
    assert (found.code, found.details["targets"]) == ("INVALID_TARGET", ["coder", "hello", "worker"])
    assert found.details["didYouMean"] == "worker"
    assert "Did you mean worker?" in found.advice
    for none in (None, "", 3, []):
        assert fault(target=none).code == "INVALID_TARGET"
    assert fault(None).code == "INVALID_TARGET"


def test_operation_is_checked_second() -> None:
    found = fault(target="worker", operation="raed_file", parameters=1, timeout="x", nonsense=1)
    assert (found.code, found.details["operations"]) == ("INVALID_OPERATION", ["list_files", "read_file"])
    assert found.details["didYouMean"] == "read_file"
    assert "targets" not in found.details
    for none in (None, ""):
        assert fault(target="worker", operation=none).message == "worker needs an operation."
    assert fault(target="worker", operation=7).code == "INVALID_OPERATION"
    assert fault(target="worker.raed_file").code == "INVALID_OPERATION"


def test_parameters_are_checked_third() -> None:
    found = fault(target="worker", operation="read_file", parameters={"maxBytes": "x", "pth": 1}, timeout="x")
    assert found.code == "INVALID_PARAMETERS"
    assert list(found.details["parameters"]["properties"]) == ["path", "maxBytes"]
    assert found.details["parameters"]["required"] == ["path"]
    assert [one["parameter"] for one in found.details["faults"]] == ["path", "maxBytes", "pth"]
    for wrong in (1, [], "no json", "[1]", True):
        assert fault(target="hello", parameters=wrong).code == "INVALID_PARAMETERS"
    assert "given twice" in fault(target="worker", operation="read_file", parameters={"maxBytes": 1, "max_bytes": 1}).message


def test_parameter_errors_use_camel_case() -> None:
    found = fault(target="worker", operation="read_file", parameters={"path": "a", "max_bytes": "x", "max_byte": 1})
    assert found.message.startswith("Parameters of worker.read_file: maxBytes must be a valid integer")
    assert "max_byte: there is no such parameter (did you mean maxBytes?)" in found.message
    assert found.advice == "worker.read_file takes path, maxBytes."


def test_remaining_fields_are_checked_last() -> None:
    assert fault(target="hello", parameters={}, nonsense=1).details["unknown"] == ["nonsense"]
    assert fault(target="hello", parameters={}, priority="urgent").details["priority"] == ["low", "normal", "high", "critical", *range(5)]
    for wrong in (5, -1, True, [], {}, 2.5):
        assert fault(target="hello", parameters={}, priority=wrong).code == "INVALID_PARAMETERS"
    assert "given twice" in fault(target="hello", Target="hello").message


@pytest.mark.parametrize("wrong", [0, -1, 300_001, "5", True, [], float("nan"), float("inf"), 10**400])
def test_invalid_timeout_or_one_above_the_maximum_is_refused(wrong: object) -> None:
    assert fault(target="worker", operation="read_file", parameters={"path": "a"}, timeout=wrong).code == "INVALID_PARAMETERS"
    if wrong == 300_001:
        found = fault(target="worker", operation="read_file", parameters={"path": "a"}, timeout=wrong)
        assert found.details == {"timeout": {"default": 30_000, "maximum": 300_000}}
