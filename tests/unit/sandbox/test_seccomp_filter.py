"""The seccomp filter, run by an emulator on both architectures: named calls are refused, all others pass."""

import errno
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.system.sandbox.seccomp import BY_PATH, FORBIDDEN, MODES, NEWEST, NUMBERS, OWN_PID, WITHIN, Filter, program

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
KILL, ALLOW, ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
SHARED = Filter(families=(), signals=False, shares_user=True)
each_machine = pytest.mark.parametrize("machine", list(ARCHITECTURES))


def run_filter(filter_: Filter, machine: str, call: int | str, *arguments: int, architecture: int | None = None) -> int:
    """The kernel's decision: the program runs on a `struct seccomp_data`."""
    number = NUMBERS[call][ARCHITECTURES[machine][1]] if isinstance(call, str) else call
    given = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, architecture or ARCHITECTURES[machine][0], 0, *(value & (1 << 64) - 1 for value in given))
    steps = list(struct.iter_unpack("=HBBI", program(filter_, machine)))
    register, place = 0, 0
    while True:
        code, if_true, if_false, value = steps[place]
        place += 1
        if code == 0x20:
            register = struct.unpack_from("=I", data, value)[0]
        elif code == 0x06:
            return int(value)
        else:
            is_so = {0x15: register == value, 0x25: register > value, 0x45: bool(register & value)}[code]
            place += if_true if is_so else if_false


@each_machine
def test_every_forbidden_call_is_refused_and_ordinary_ones_pass(machine: str) -> None:
    column = ARCHITECTURES[machine][1]
    for_files = {"openat2", *MODES} - {*BY_PATH}  # checked for files that outlive the sandbox only
    named = {numbers[column] for name, numbers in NUMBERS.items() if name not in for_files}
    for name in FORBIDDEN + WITHIN:
        if (number := NUMBERS[name][column]) is not None:
            assert run_filter(Filter(), machine, number) == ERRNO | errno.EPERM, name
            allowed = run_filter(Filter(allows_within=True), machine, number) == ALLOW
            assert allowed == (name in WITHIN)
    for number in set(range(NEWEST + 1)) - named:
        assert run_filter(Filter(), machine, number) == ALLOW
        assert run_filter(SHARED, machine, number) == ALLOW


@each_machine
@given(number=st.integers(NEWEST + 1, (1 << 32) - 1))
def test_unknown_system_call_does_not_exist(machine: str, number: int) -> None:
    """Includes x32."""
    assert run_filter(Filter(), machine, number) == ERRNO | errno.ENOSYS


@each_machine
@given(number=st.integers(0, 600), architecture=st.integers(1, (1 << 32) - 1))
def test_calls_of_another_architecture_kill_the_process(machine: str, number: int, architecture: int) -> None:
    if architecture != ARCHITECTURES[machine][0]:
        assert run_filter(Filter(), machine, number, architecture=architecture) == KILL


@each_machine
@given(flags=st.integers(0, (1 << 64) - 1))
def test_clone_is_refused_exactly_when_it_asks_for_a_namespace(machine: str, flags: int) -> None:
    asked = run_filter(Filter(), machine, "clone", flags)
    assert asked == (ERRNO | errno.EPERM if flags & 0x7E020000 else ALLOW)
    assert run_filter(Filter(), machine, NUMBERS["clone3"][0]) == ERRNO | errno.ENOSYS, "its flags cannot be checked"


@each_machine
@given(family=st.integers(0, 60))
def test_only_granted_socket_families_can_be_created(machine: str, family: int) -> None:
    for families in ((), (socket.AF_UNIX,), (socket.AF_INET, socket.AF_INET6)):
        expected = ALLOW if family in families else ERRNO | errno.EACCES
        assert run_filter(Filter(families=families), machine, "socket", family, 1, 0) == expected


@each_machine
def test_terminal_injection_and_undumpable_processes_are_refused(machine: str) -> None:
    for call, argument, is_refused in (
        ("ioctl", (0, 0x5412), True), ("ioctl", (0, 0xFFFFFFFF00005412), True), ("ioctl", (0, 0x5401), False),
        ("prctl", (4,), True), ("personality", (0xFFFFFFFF,), False), ("personality", (0x40000,), True),
    ):  # fmt: skip
        assert run_filter(Filter(), machine, call, *argument) == (ERRNO | errno.EPERM if is_refused else ALLOW), (call, argument)


@each_machine
@given(pid=st.integers(1, 1 << 22))
def test_process_without_its_own_pid_namespace_may_signal_only_itself(machine: str, pid: int) -> None:
    for name in ("kill", "tgkill"):
        assert run_filter(SHARED, machine, name, pid, 9) == ERRNO | errno.EPERM
        assert run_filter(SHARED, machine, name, OWN_PID, 9) == ALLOW
        assert run_filter(SHARED, machine, name, -1, 9) == ERRNO | errno.EPERM
        assert run_filter(Filter(), machine, name, pid, 9) == ALLOW
    assert run_filter(SHARED, machine, "pidfd_send_signal", 3, 9) == ERRNO | errno.EPERM
    assert run_filter(SHARED, machine, "fcntl", 3, 8, pid) == ERRNO | errno.EPERM
    assert run_filter(SHARED, machine, "prlimit64", pid) == ERRNO | errno.EPERM
    assert run_filter(SHARED, machine, "prlimit64", 0) == ALLOW
