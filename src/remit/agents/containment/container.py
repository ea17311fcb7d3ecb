"""Containers: runs an agent's program in bubblewrap with only the files, network and environment that it needs.

The workspace and the scratch directory are writable at their own paths, the system is readable, everything else does not exist inside.
Supervisor, deadlines and kills work as for any command: bubblewrap is merely put before the program."""

import asyncio
import contextlib
import errno
import os
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from remit.agents.coding.dialects import may_change
from remit.agents.containment.gateway import CONNECT, Gateway
from remit.agents.containment.hosts import VENDOR_HOSTS, HostList, parse_host
from remit.agents.containment.vendor_home import HIDDEN_VARIABLES, VendorHome, vendor_home
from remit.agents.definition import Definition, Kind
from remit.agents.process.command_process import CommandProcess, Program, ProgramContext, start_error
from remit.agents.process.fork_server import FILTER_FD
from remit.agents.process.pool import ProcessPool
from remit.core.agents import WorkspaceKind
from remit.core.errors import Stopped, Unavailable
from remit.core.ids import CALLER, decode
from remit.core.protected_paths import PYPROJECT, Protection
from remit.policy.audit import note_access
from remit.system.sandbox import recipes, seccomp
from remit.system.sandbox.bubblewrap import enclose, inner_environment, pinned
from remit.system.sandbox.probe import Offer, probe
from remit.system.sandbox.profile import Profile, git_directories, protected_entries, reserve, toolchain, unmade_repository, with_git_kept
from remit.system.threads import off_loop
from remit.system.trust import state_folder
from remit.system.unix_sockets import listen_at

PROXY_PORT = 3128
_NETLINK = 16
_REFUSALS_SHOWN = 20
_EDITED = (PYPROJECT, "specs")
"""Partly protected: in the one, `[tool.remit]` needs approval anyway; in the other, agents write plans and reports."""
_CERTIFICATES = ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PROXIES = {
    **{name: f"http://127.0.0.1:{PROXY_PORT}" for one in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY") for name in (one, one.lower())},
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost,::1"),
    "NODE_USE_ENV_PROXY": "1",
}
_FILTER = seccomp.Filter(families=(socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, _NETLINK), allows_within=True, keeps_files=True)
_START_SECONDS = 20.0
_ENTRY = """
import os, sys
from _socket import AF_INET, AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket
link_path, ports, *argv = sys.argv[1:]
listeners = []
for port in ports.split(","):
    listeners.append(socket(AF_INET, SOCK_STREAM))
    listeners[-1].bind(("127.0.0.1", int(port)))
    listeners[-1].listen(128)
link = socket(AF_UNIX, SOCK_STREAM)
folder = os.open(os.path.dirname(link_path), os.O_RDONLY)
link.connect(f"/proc/self/fd/{folder}/{os.path.basename(link_path)}")  # a path may be too long for the address of a socket
os.close(folder)
numbers = b"".join(one.fileno().to_bytes(4, sys.byteorder) for one in listeners)
link.sendmsg([b"L"], [(SOL_SOCKET, SCM_RIGHTS, numbers)])
if link.recv(1) != b"G":
    sys.exit(125)
try:
    os.execvp(argv[0], argv)
except OSError as error:
    sys.exit(f"{argv[0]} cannot be started in the container: {error.strerror}")
"""
"""The first program inside: opens the listening sockets, hands them over, and executes the agent's program. It imports `_socket`, because
importing `socket` takes 13 ms."""


class Container:
    """Starts the programs of an agent that declares `contain`."""

    def __init__(self, definition: Definition, pool: ProcessPool, root: Path) -> None:
        self._definition = definition
        self._pool = pool
        self._root = root

    @contextlib.asynccontextmanager
    async def spawn(self, program: Program, ctx: ProgramContext) -> AsyncIterator[CommandProcess]:
        """Like `ProcessPool.spawn`. Raises `Unavailable` if containment is required but not possible."""
        is_contained, offer = await self.contains(), probe()
        if not is_contained:
            ctx.progress(f"Not contained: {_fault(offer)}. {self._definition.name} runs with all rights of this user.")
        async with self._contained(program, ctx, offer) if is_contained else self._pool.spawn(program, ctx) as spawned:
            yield spawned

    async def contains(self) -> bool:
        """Raises `Unavailable` if containment is required but not possible."""
        offer = await off_loop(probe)
        if self._definition.contain is True and not offer.has_bubblewrap:
            raise Unavailable(
                f"{self._definition.name} must be contained (contain = true), and {_fault(offer)}: it is not started.",
                code="TOOL_UNAVAILABLE",
                advice=f'{offer.advice()} Or declare contain = "auto", which runs it uncontained and says so.',
            )
        return offer.has_bubblewrap

    @contextlib.asynccontextmanager
    async def _contained(self, program: Program, ctx: ProgramContext, offer: Offer) -> AsyncIterator[CommandProcess]:
        definition = self._definition
        vendor = vendor_of(definition)
        owner = (str(self._root), definition.name)
        async with contextlib.AsyncExitStack() as stack:
            home = await _entered(stack, vendor_home(vendor, owner, program.environment))
            hosts = HostList([*VENDOR_HOSTS.get(vendor or "", ()), *definition.hosts, *_own_hosts(program.environment, home)])
            handover = Handover(home.link) if hosts else None
            if handover is not None:
                stack.callback(handover.close)
            inside = await off_loop(_Inside, definition, program, ctx, home, offer)
            stack.enter_context(reserve(inside.profile.reserved))
            ctx.progress(f"Contained by bubblewrap: it writes in {', '.join(map(str, inside.writes))}, and reaches {hosts}.")
            ports = (PROXY_PORT, *(port for port in hosts.loopback_ports() if port != PROXY_PORT)) if hosts else ()
            stack.push_async_callback(inside.note_tool_files, ctx)
            gateway = Gateway(hosts, ctx.permit, self._refusals_of(ctx))
            stack.push_async_callback(gateway.close)
            pins = stack.enter_context(pinned(inside.profile))
            spawned = await stack.enter_async_context(self._pool.spawn(inside.enclosed(ports, pins), ctx))
            if handover is not None:
                proxy, *forwarded = await handover.take(spawned, len(ports))
                await gateway.serve(proxy, dict(zip(ports[1:], forwarded, strict=True)))
                await handover.go()
            yield spawned

    def _refusals_of(self, ctx: ProgramContext) -> Callable[[Mapping[str, Any], str], Awaitable[None]]:
        known: set[str] = set()

        async def note(facts: Mapping[str, Any], because: str) -> None:
            entry = {"event": "decided", "verdict": "deny", "caller": self._definition.name, "action": CONNECT, "depth": ctx.depth}
            entry |= {"rules": ["hosts"], "facts": dict(facts), "on_the_way": True, "because": because, "sessions": [ctx.session_id]}
            if because not in known and len(known) < _REFUSALS_SHOWN:
                known.add(because)
                with contextlib.suppress(Stopped):
                    ctx.progress(f"Refused: {because}")
            await off_loop(note_access, self._root / ".remit", entry)

        return note


async def _entered(stack: contextlib.AsyncExitStack, manager: "contextlib.AbstractContextManager[VendorHome]") -> VendorHome:
    """On a thread, because entering and leaving writes files."""
    made = await off_loop(manager.__enter__)
    stack.push_async_callback(off_loop, manager.__exit__, None, None, None)
    return made


def _fault(offer: Offer) -> str:
    return f"bubblewrap does not work here ({offer.fault})" if offer.bubblewrap else "bubblewrap is not installed"


def vendor_of(definition: Definition) -> str | None:
    """The vendor whose directory it needs; for an agent with the Agent Client Protocol, by its program."""
    if definition.kind in VENDOR_HOSTS:
        return str(definition.kind)
    name = Path(definition.command[0]).name if definition.command and definition.kind is Kind.ACP else ""
    return next((vendor for vendor in VENDOR_HOSTS if name == vendor or name.startswith(f"{vendor}-")), None)


def _own_hosts(environment: Mapping[str, str], home: VendorHome) -> Iterator[str]:
    """Model hosts in the user's own settings."""
    named = [value for name, value in environment.items() if name.endswith("_BASE_URL")]
    for address in (*named, *home.addresses):
        with contextlib.suppress(ValueError):
            parts = urlsplit(address)
            if parts.hostname:
                host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
                listed = f"{host}:{parts.port or (80 if parts.scheme == 'http' else 443)}"
                parse_host(listed)
                yield listed


# ---- the first process inside


class Handover:
    """A socket through which the first process inside hands over its listening sockets, once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listener = listen_at(path)
        self._link: socket.socket | None = None

    async def take(self, spawned: CommandProcess, count: int) -> list[socket.socket]:
        loop = asyncio.get_running_loop()
        accepting = loop.create_task(loop.sock_accept(self._listener))
        try:
            await asyncio.wait((accepting, spawned.link.lost), timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not accepting.done():
                accepting.cancel()
                await asyncio.wait((accepting,))  # the loop must not watch the socket once it is closed
        if accepting.cancelled():
            words = spawned.stderr_tail() or f"it did not start within {_START_SECONDS:g} s"
            raise Unavailable(f"The container could not be made: {words}.", code="TOOL_UNAVAILABLE", advice="`remit doctor` tries it.")
        self._link, _ = accepting.result()
        ready = asyncio.Event()
        loop.add_reader(self._link, ready.set)
        try:
            await asyncio.wait_for(ready.wait(), _START_SECONDS)
        finally:
            loop.remove_reader(self._link)
        _, numbers, _, _ = socket.recv_fds(self._link, 1, count)
        sockets = [socket.socket(fileno=number) for number in numbers]
        for one in sockets:
            one.setblocking(False)
        return sockets

    async def go(self) -> None:
        """From here on it is the agent's program; nothing more is accepted."""
        assert self._link is not None
        await asyncio.get_running_loop().sock_sendall(self._link, b"G")
        self.close()

    def close(self) -> None:
        self._listener.close()
        if self._link is not None:
            self._link.close()


# ---- what there is inside


class _Inside:
    """The view of one run, and its command line."""

    def __init__(self, definition: Definition, program: Program, ctx: ProgramContext, home: VendorHome, offer: Offer) -> None:
        left_out = (*HIDDEN_VARIABLES, *_PROXIES, *(() if definition.delegates else (CALLER,)))
        self._environ = {name: value for name, value in program.environment.items() if name not in left_out}
        self._program = program
        self.home = home
        self._offer = offer
        workspace, scratch = ctx.workspace.resolve(), ctx.scratch.resolve()
        is_reader = definition.kind is Kind.CODEX and not may_change(definition.allow)  # the others enforce their own lists
        is_written = definition.spec.workspace not in (WorkspaceKind.NONE, WorkspaceKind.SCRATCH) and not is_reader
        self.writes = (workspace, scratch) if is_written else (scratch,)
        self._is_shared = is_written and definition.spec.workspace is WorkspaceKind.SHARED
        # OpenCode does not start if it cannot write its packages into the project's directory.
        self._edited = (*_EDITED, ".opencode") if vendor_of(definition) == "opencode" else _EDITED
        self._fixed = self._tool_files()
        own, dot = workspace / ".remit", workspace / ".git"
        if any(place.resolve().is_relative_to(workspace) for place in (Path.home(), state_folder())):
            raise Unavailable(
                f"The workspace {workspace} contains your home directory or remit's state, which a container must hide.",
                advice='Work in a directory below, or declare workspace = "worktree".',
            )
        if dot.is_symlink():
            raise Unavailable(f"{dot} is a link, which cannot be protected in a container.", advice='Declare workspace = "worktree".')
        profile = Profile(
            workspace=self.writes[0],
            home=home.home,
            writable=(scratch, *home.writable, *self._sockets()),
            read_only=(workspace, *self._tools(definition, workspace), *home.read_only, *git_directories(workspace), *self._fixed),
            hidden=(own,) if scratch.is_relative_to(own) else (),
            reserved=unmade_repository(workspace) if is_written else (),
        )
        self.profile = with_git_kept(profile) if is_written else profile

    def enclosed(self, ports: Sequence[int], pins: Mapping[Path, int]) -> Program:
        """The program inside bubblewrap."""
        assert self._offer.bubblewrap is not None
        has_filter = self._offer.seccomp
        bubblewrap = enclose(
            self._offer.bubblewrap,
            self.profile,
            {path: number for number, path in enumerate(pins, FILTER_FD + 1)},
            locks_namespaces=self._offer.locks_namespaces,
            filter_fd=FILTER_FD if has_filter else None,
        )
        entry = [str(recipes.python().program), "-I", "-S", "-B", "-c", _ENTRY, str(self.home.link), ",".join(map(str, ports))]
        chosen = [*bubblewrap[:-3], "--chdir", str(self._program.folder), "--", *(entry if ports else ())]
        filter_program = seccomp.program(_FILTER) if has_filter else b""
        environment = {**self._environ, **self.home.environment(), "TMPDIR": "/tmp", **(_PROXIES if ports else {})}
        held = tuple(f"/proc/{os.getpid()}/fd/{number}" for number in pins.values())
        chosen, environment = inner_environment(chosen, environment)
        argv = (*chosen, self._name, *self._program.argv[1:])
        return replace(self._program, argv=argv, environment=environment, seccomp=filter_program, pins=held)

    def _tool_files(self) -> list[Path]:
        """Files at the top of the project that start programs on the host; a worktree passes them on as a diff only."""
        found = protected_entries(self.writes[0], Protection.SETTINGS, Protection.TOOLS) if self._is_shared else []
        return [path for path in found if path.name not in self._edited]

    async def note_tool_files(self, ctx: ProgramContext) -> None:
        """Existing ones are read-only inside; warn about new ones."""
        made = sorted(path.name for path in await off_loop(self._tool_files) if path not in self._fixed)
        if made:
            with contextlib.suppress(Stopped):
                ctx.progress(f"It created {', '.join(made)}, which other programs execute: review before you use them.")

    def _sockets(self) -> Iterator[Path]:
        """The hand-over socket, and that of the tree's owner for an agent that delegates."""
        if self.home.link.exists():
            yield self.home.link
        token = self._environ.get(CALLER)
        if token and (path := Path(decode(token).address)).is_socket():
            yield path

    def _tools(self, definition: Definition, workspace: Path) -> list[Path]:
        """The toolchain, the program, and files named in its declaration, unless already visible."""
        shown = list(toolchain(workspace, self._environ))
        self._name, parts = _installed(self._program)
        words = [*definition.command[1:], *(self._environ.get(name, "") for name in _CERTIFICATES)]
        named = [part for word in words if os.path.isabs(word) and os.path.isfile(word) for part in (_packages(word) or [Path(word)])]
        for path in (*parts, *named):
            if not any(path.is_relative_to(folder) for folder in (workspace, *map(Path, recipes.SYSTEM_FOLDERS), *shown)):
                shown.append(path)
        return shown


def _packages(path: str | Path) -> list[Path]:
    """The Node packages that a file belongs to."""
    return [folder for folder in Path(os.path.realpath(path)).parents if folder.name == "node_modules"][-1:]


def _installed(program: Program) -> tuple[str, list[Path]]:
    """The program's path inside, and its location, with its Node packages or Python virtual environment."""
    name = program.argv[0]
    found = shutil.which(name, path=program.environment.get("PATH")) if "/" not in name else str(program.folder / name)
    if found is None or not os.path.exists(found):
        raise start_error(program, {"step": "program", "errno": errno.ENOENT})
    real = Path(os.path.realpath(found))
    packages = _packages(real)
    if packages:  # by its real path: links among packages are relative
        return str(real), packages
    environment = Path(found).parent.parent
    return found, [*([environment] if (environment / "pyvenv.cfg").is_file() else []), Path(found), real]
