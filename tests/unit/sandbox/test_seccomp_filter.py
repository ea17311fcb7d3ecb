"""The seccomp filter, run by an emulator on both architectures: named calls are refused, all others pass."""

import errno
import socket
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit.system.sandbox.seccomp import BY_PATH, FORBIDDEN, GROUPS, MODES, NEWEST, OWN_PID, WATCHED, WATCHING, WITHIN, Filter, program

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
KILL, ALLOW, ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
SHARED = Filter(families=(), signals=False, shares_user=True)
each_machine = pytest.mark.parametrize("machine", list(ARCHITECTURES))


def run_filter(filter_: Filter, machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """The kernel's decision: the program runs on a `struct seccomp_data`."""
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
    named = {numbers[column] for table in (FORBIDDEN, WITHIN, WATCHED, BY_PATH, WATCHING, GROUPS) for numbers in table.values()}
    for name, numbers in (FORBIDDEN | WITHIN).items():
        if numbers[column] is not None:
            assert run_filter(Filter(), machine, numbers[column]) == ERRNO | errno.EPERM, name
            allowed = run_filter(Filter(allows_within=True), machine, numbers[column]) == ALLOW
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
    asked = run_filter(Filter(), machine, WATCHED["clone"][ARCHITECTURES[machine][1]], flags)
    assert asked == (ERRNO | errno.EPERM if flags & 0x7E020000 else ALLOW)


@each_machine
def test_clone3_does_not_exist_since_its_flags_cannot_be_checked(machine: str) -> None:
    assert run_filter(Filter(), machine, WATCHED["clone3"][0]) == ERRNO | errno.ENOSYS


@each_machine
@given(family=st.integers(0, 60))
def test_only_granted_socket_families_can_be_created(machine: str, family: int) -> None:
    number = WATCHED["socket"][ARCHITECTURES[machine][1]]
    for families in ((), (socket.AF_UNIX,), (socket.AF_INET, socket.AF_INET6)):
        expected = ALLOW if family in families else ERRNO | errno.EACCES
        assert run_filter(Filter(families=families), machine, number, family, 1, 0) == expected


@each_machine
def test_terminal_injection_and_undumpable_processes_are_refused(machine: str) -> None:
    column = ARCHITECTURES[machine][1]
    assert run_filter(Filter(), machine, WATCHED["ioctl"][column], 0, 0x5412) == ERRNO | errno.EPERM
    assert run_filter(Filter(), machine, WATCHED["ioctl"][column], 0, 0xFFFFFFFF00005412) == ERRNO | errno.EPERM
    assert run_filter(Filter(), machine, WATCHED["ioctl"][column], 0, 0x5401) == ALLOW
    assert run_filter(Filter(), machine, WATCHED["prctl"][column], 4) == ERRNO | errno.EPERM
    assert run_filter(Filter(), machine, WATCHED["personality"][column], 0xFFFFFFFF) == ALLOW
    assert run_filter(Filter(), machine, WATCHED["personality"][column], 0x40000) == ERRNO | errno.EPERM


@each_machine
@given(pid=st.integers(1, 1 << 22))
def test_process_without_its_own_pid_namespace_may_signal_only_itself(machine: str, pid: int) -> None:
    column = ARCHITECTURES[machine][1]
    for name in ("kill", "tgkill"):
        assert run_filter(SHARED, machine, WATCHED[name][column], pid, 9) == ERRNO | errno.EPERM
        assert run_filter(SHARED, machine, WATCHED[name][column], OWN_PID, 9) == ALLOW
        assert run_filter(SHARED, machine, WATCHED[name][column], -1, 9) == ERRNO | errno.EPERM
        assert run_filter(Filter(), machine, WATCHED[name][column], pid, 9) == ALLOW
    assert run_filter(SHARED, machine, WATCHED["pidfd_send_signal"][column], 3, 9) == ERRNO | errno.EPERM
    assert run_filter(SHARED, machine, WATCHED["fcntl"][column], 3, 8, pid) == ERRNO | errno.EPERM
    assert run_filter(SHARED, machine, WATCHED["prlimit64"][column], pid) == ERRNO | errno.EPERM
    assert run_filter(SHARED, machine, WATCHED["prlimit64"][column], 0) == ALLOW


@each_machine
def test_file_modes_cannot_be_changed_under_landlock_alone(machine: str) -> None:
    column = ARCHITECTURES[machine][1]
    for name, numbers in BY_PATH.items():
        if numbers[column] is not None:
            assert run_filter(SHARED, machine, numbers[column]) == ERRNO, name
            assert run_filter(Filter(), machine, numbers[column]) == ALLOW, name


@each_machine
def test_no_process_leaves_its_process_group(machine: str) -> None:
    for numbers in GROUPS.values():
        number = numbers[ARCHITECTURES[machine][1]]
        assert number is not None
        assert run_filter(Filter(signals=False), machine, number) == ERRNO
        assert run_filter(Filter(), machine, number) == ALLOW


@each_machine
@given(mode=st.integers(0, 0o7777), flags=st.integers(0, 0o37777777))
def test_no_kept_file_can_become_setuid(machine: str, mode: int, flags: int) -> None:
    kept, column = Filter(keeps_files=True), ARCHITECTURES[machine][1]
    for name, (*numbers, place, flagged) in MODES.items():
        if numbers[column] is None:
            continue
        arguments = [0] * 4
        arguments[place] = mode
        if flagged is not None:
            arguments[flagged] = flags
        is_making = flagged is None or flags & (0o100 | 0o20000000)
        refused = mode & 0o6000 and is_making
        assert run_filter(kept, machine, numbers[column], *arguments) == (ERRNO | errno.EPERM if refused else ALLOW), name
        assert run_filter(Filter(), machine, numbers[column], *arguments) == ALLOW
        if name in BY_PATH:
            assert run_filter(replace(SHARED, keeps_files=True), machine, numbers[column], *arguments) == ERRNO
    assert run_filter(kept, machine, 437) == ERRNO | errno.ENOSYS
