# ruff: noqa: E501 - each program stays in one piece
"""The corpus of escape attempts: small programs that print TRIED before the attempt and ESCAPED if it succeeds.

`{names}` are replaced by targets that the tests create outside: a secret file, a process to attack, listening sockets. `proves` means that
the same program prints ESCAPED without a sandbox, so that a bug in the program cannot look like safety.
"""

from dataclasses import dataclass, field

SYSCALL = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def syscall(*given):
    done = libc.syscall(*[ctypes.c_long(one) if isinstance(one, int) else one for one in given])
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done
"""

BATCH = """
import ctypes, os, signal, socket, subprocess, sys, time  # once for all forks
def tried(code):
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        os.dup2(theirs, 1), os.dup2(theirs, 2), os.close(theirs)
        try:
            exec(compile(code, "attempt", "exec"), {{"__name__": "__main__"}})
        except BaseException as error:
            print(repr(error))
        sys.stdout.flush()
        os._exit(0)
    os.close(theirs)
    said = b""
    while part := os.read(ours, 65536):
        said += part
    os.close(ours)
    status = os.waitpid(child, 0)[1]
    return said.decode() + f"status {{status}}"
for name, code in {attempts}:
    print(repr((name, tried(code))), flush=True)
"""
"""Runs many attempts, each in a fork of one program: the sandbox of the program also confines its forks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    name: str
    code: str
    language: str = "python"
    proves: bool = True
    files: dict[str, str] = field(default_factory=dict)
    alone: bool = False
    """Whether it needs a separate sandbox because it attacks its parent or all processes. The others are forks in one sandbox."""


def trying(name: str, body: str, *, proves: bool = True, raw: bool = False, alone: bool = False) -> Attempt:
    """Python code that prints ESCAPED if its body finishes without an error."""
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    code = f"{SYSCALL if raw else ''}\nimport os, socket, sys, time, signal, subprocess\nprint('TRIED', flush=True)\ntry:\n{lines}\n"
    code += "    print('ESCAPED', flush=True)\nexcept (OSError, AssertionError, ImportError, subprocess.SubprocessError) as error:\n"
    return Attempt(name=name, code=code + "    print('held:', error)\n", proves=proves, alone=alone)


ATTEMPTS = [
    # ---- files
    trying("read a secret of the project", "assert 'geheim' in open('{secret}').read()"),
    trying("read the shadow file", "open('/etc/shadow').read(1)", proves=False),
    trying("read the list of users", "assert open('/etc/passwd').read()"),
    trying("list the home folder", "assert len(os.listdir('{home}')) > 1  # the way to an interpreter may be there, and nothing else"),
    trying("list the project", "assert os.listdir('{project}')"),
    trying("read the orchestrator's database", "open('{project}/.remit/remit.db', 'rb').read()"),
    trying("write beside the project", "open('{outside}/planted', 'w').write('x')"),
    trying("change a file of the project", "open('{secret}', 'a').write('x')"),
    trying("cut a file of the project off", "os.truncate('{victim_file}', 0)\nassert os.stat('{victim_file}').st_size == 0"),
    trying("change the rights of a file outside", "os.chmod('{victim_file}', 0o777)\nassert os.stat('{victim_file}').st_mode & 0o777 == 0o777"),
    trying("change the times of a file outside", "os.utime('{victim_file}', (1, 1))\nassert os.stat('{victim_file}').st_mtime == 1"),
    trying("remove a file outside", "os.unlink('{victim_file}')"),
    trying("move a file in from outside", "os.rename('{victim_file}', 'mine')"),
    trying("hard link to a secret", "os.link('{secret}', 'linked')\nassert 'geheim' in open('linked').read()", proves=False),
    trying("read through a symbolic link", "os.symlink('{secret}', 'soft')\nassert 'geheim' in open('soft').read()"),
    trying("climb up by dots", "assert 'geheim' in open('../' * 30 + '{secret}').read()"),
    trying("read through the root of the first process", "assert 'geheim' in open('/proc/1/root{secret}').read()", proves=False),
    trying("read through the root of the parent", "assert 'geheim' in open(f'/proc/{{os.getppid()}}/root{secret}').read()", alone=True),
    trying("write into the system", "open('/usr/lib/planted', 'w')", proves=False),
    trying("write into the interpreter", "open(os.__file__, 'a')", proves=False),
    trying("read what others have in shared memory", "assert open('{shared}').read()"),
    trying("look into /sys", "assert os.listdir('/sys/class')"),
    trying("open a block device", "import glob\nassert [open(one) for one in glob.glob('/dev/[vs]d?')]", proves=False),
    trying("make a device file", "os.mknod('device', 0o600 | 0o020000, os.makedev(1, 1))\nopen('device', 'rb').read(1)", proves=False),
    trying("chroot and out again", "os.chroot('.')"),
    # ---- environment, processes, signals
    trying("read our environment", "assert 'REMIT_TEST_SECRET' in os.environ"),
    trying(
        "read the environment of any process",
        "import glob\nfound = b''\nfor one in glob.glob('/proc/[0-9]*/environ'):\n"
        "    try: found += open(one, 'rb').read()\n    except OSError: pass\nassert b'REMIT_TEST_SECRET' in found",
    ),
    trying("see other processes", "assert os.path.exists('/proc/{victim}/comm') and 'sleep' in open('/proc/{victim}/comm').read()"),
    trying("signal another process", "os.kill({victim}, 0)"),
    trying("kill everybody", "os.kill({victim}, 9)\nos.kill(-1, 9)", proves=False, alone=True),
    trying("kill the keeper", "before = os.getppid()\nos.kill(before, 9)\ntime.sleep(0.1)\nassert os.getppid() != before", proves=False, alone=True),
    trying("stop the keeper", "import _signal\nos.kill(os.getppid(), 19)\nassert 'T' in open(f'/proc/{{os.getppid()}}/stat').read()", proves=False, alone=True),
    trying(
        "kill by a file that becomes readable",
        "import fcntl\nr, w = os.pipe()\nfcntl.fcntl(r, 8, {victim})\nfcntl.fcntl(r, 10, 9)\nfcntl.fcntl(r, 4, os.O_ASYNC)\nos.write(w, b'x')\n"
        "assert False, 'whether it worked is seen outside'",
        proves=False,
    ),
    trying("trace another process", "syscall(101, 0x4206, {victim}, 0, 0)", raw=True),
    trying("read the memory of another process", "open('/proc/{victim}/mem', 'rb')"),
    trying("write the memory of the keeper", "open(f'/proc/{{os.getppid()}}/mem', 'r+b')", alone=True),
    trying("take a file of the keeper", "syscall(438, os.pidfd_open(os.getppid()), 0, 0)", raw=True, alone=True),
    trying("limit another process", "import resource\nresource.prlimit({victim}, resource.RLIMIT_NOFILE, (64, 64))"),
    trying("slow another process down", "os.setpriority(os.PRIO_PROCESS, {victim}, 19)"),
    trying("keep an open file of ours", "import os.path\nassert [n for n in range(3, 1000) if os.path.exists(f'/dev/fd/{{n}}') and 'geheim' in os.readlink(f'/dev/fd/{{n}}')]", proves=False),
    trying("find an inherited file", "found = []\nfor n in range(3, 4096):\n    try: found.append(os.fstat(n))\n    except OSError: pass\n"
           "import stat\nassert [one for one in found if not stat.S_ISDIR(one.st_mode)], 'the way to the interpreter is all there may be'", proves=False),
    # ---- network
    trying("connect to this machine", "socket.create_connection(('127.0.0.1', {port}), 2)"),
    trying("connect by IPv6", "socket.socket(socket.AF_INET6).bind(('::', 0))", proves=False),
    trying("listen", "s = socket.socket()\ns.bind(('0.0.0.0', 0))\ns.listen()"),
    trying("send a datagram", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))"),
    trying("ask for a name", "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.53', 53))", proves=False),
    trying("raw socket", "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)", proves=False),
    trying("packet socket", "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", proves=False),
    trying("netlink socket", "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)"),
    trying("vsock", "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)", proves=False),
    trying("socket of the orchestrator", "socket.socket(socket.AF_UNIX).connect('{unix}')"),
    trying("abstract socket", "socket.socket(socket.AF_UNIX).connect('\\0{abstract}')"),
    trying("datagram from a connected pair", "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\na.sendto(b'x', '{datagram}')"),
    trying("datagram to an abstract socket", "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)\na.sendto(b'x', '\\0{datagram}')"),
    # ---- kernel
    trying("open sysrq", "open('/proc/sysrq-trigger', 'w')", proves=False),
    trying("change a setting of the kernel", "open('/proc/sys/kernel/hostname', 'r+')", proves=False),
    trying("change the core pattern", "open('/proc/sys/kernel/core_pattern', 'r+')", proves=False),
    trying("write one's own memory through /proc", "open('/proc/self/mem', 'r+b')"),
    trying("map other users in", "open('/proc/self/uid_map', 'w').write('0 0 1')", proves=False),
    trying("change the host name", "socket.sethostname(socket.gethostname())", proves=False),
    trying("set the clock", "time.clock_settime(time.CLOCK_REALTIME, time.time())", proves=False),
    trying("read the log of the kernel", "syscall(103, 10, 0, 0)", raw=True, proves=False),
    trying("open the log of the kernel", "open('/dev/kmsg', 'rb')", proves=False),
    trying("new user namespace", "syscall(272, 0x10000000)", raw=True),
    trying("new mount namespace", "syscall(272, 0x00020000)", raw=True, proves=False),
    trying("clone into a namespace", "child = syscall(56, 0x10000000 | 17, 0, 0, 0, 0)\nif child == 0: os._exit(0)", raw=True),
    trying(
        "clone3 into a namespace",
        "asked = (0x10000000).to_bytes(8, 'little') + bytes(24) + (17).to_bytes(8, 'little') + bytes(24)\n"
        "child = syscall(435, asked, 64)\nif child == 0: os._exit(0)",
        raw=True,
    ),
    trying("enter a namespace", "syscall(308, os.open('/proc/self/ns/net', 0), 0)", raw=True, proves=False),
    trying("mount", "syscall(165, b'none', b'/tmp', b'tmpfs', 0, 0)", raw=True, proves=False),
    trying("unmount", "syscall(166, b'/proc', 2)", raw=True, proves=False),
    trying("look into a keyring", "syscall(250, 0, -3, 1)", raw=True),
    trying("add a key", "syscall(248, b'user', b'remit-test', b'x', 1, -2)", raw=True),
    trying("memory that no process has", "os.memfd_create('hidden')"),
    trying("System V memory", "syscall(29, 0, 4096, 0o1600)", raw=True),
    trying("other personality", "syscall(135, 0x0040000)", raw=True),
    trying("io_uring", "try: syscall(425, 1, 0)\nexcept OSError as error: assert error.errno not in (1, 38)", raw=True, proves=False),
    trying("bpf", "try: syscall(321, -1, 0, 0)\nexcept OSError as error: assert error.errno not in (1, 38)", raw=True, proves=False),
    trying("userfaultfd", "syscall(323, 1)", raw=True, proves=False),
    trying("open by handle", "try: syscall(304, -1, 0, 0)\nexcept OSError as error: assert error.errno not in (1, 38)", raw=True, proves=False),
    trying("system call of the x32 kind", "syscall(0x40000000 | 39)", raw=True, proves=False),
    trying("a system call of the future", "try: syscall(470, 0, 0, 0, 0)\nexcept OSError as error: assert error.errno not in (1, 38)", raw=True, proves=False),
    trying("type into a terminal", "import fcntl, pty\nm, s = pty.openpty()\nfcntl.ioctl(s, 0x5412, b'x')", proves=False),
    trying("gain rights by a program", "assert syscall(157, 39, 0, 0, 0, 0) == 0", raw=True),
    trying("keep a capability", "assert 'CapBnd:\\t0000000000000000' not in open('/proc/self/status').read()"),
    trying("dump core", "import resource\nresource.setrlimit(resource.RLIMIT_CORE, (1, 1))", proves=False),
    trying("raise a limit", "import resource\nsoft, hard = resource.getrlimit(resource.RLIMIT_NPROC)\nassert hard > 0\nresource.setrlimit(resource.RLIMIT_NPROC, (hard + 99, hard + 99))", proves=False),
    trying("raise one's priority", "os.nice(-10)", proves=False),
    trying("become root", "os.setuid(0)", proves=False),
    trying(
        "32-bit system call",
        "import mmap\npage = mmap.mmap(-1, 4096, prot=7)\npage.write(bytes.fromhex('53b814000000cd805bc3'))\n"
        "import ctypes\nassert ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))() > 0",
    ),
    trying("su", "assert subprocess.run(['su', '-c', 'id -u'], capture_output=True, stdin=-3, timeout=0.5).stdout.strip() == b'0'", proves=False),
    trying("a planted suid shell", "import shutil\nshutil.copy('/bin/sh', 'sh')\nos.chmod('sh', 0o6755)\nassert subprocess.run(['./sh', '-pc', 'id -u'], capture_output=True).stdout.strip() == b'0'", proves=False),
    Attempt(
        name="modules that shadow what the keeper imports",
        code="print('TRIED')",
        proves=False,
        alone=True,
        files={f"{name}.py": "print('ESCAPED')" for name in ("sitecustomize", "usercustomize", "ctypes", "select", "resource", "atexit", "gc")},
    ),
    # ---- other languages
    Attempt(
        name="shell: read, write, connect",
        language="shell",
        code="echo TRIED; grep -q geheim '{secret}' && echo ESCAPED; (echo x > '{outside}/planted') 2>/dev/null && echo ESCAPED; "
        "(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo ESCAPED; true",
    ),
    Attempt(name="shell: LD_PRELOAD into a setuid program", language="shell", proves=False,
            code="echo TRIED; LD_PRELOAD=/workspace/x.so timeout 0.5 su -c true </dev/null >/dev/null 2>&1 && echo ESCAPED; true"),
    Attempt(name="shell: unshare", language="shell", code="echo TRIED; unshare -U true 2>/dev/null && echo ESCAPED; true"),
    Attempt(
        name="JavaScript: read, connect, see processes",
        language="javascript",
        code="const fs = require('fs'), net = require('net'); console.log('TRIED');\n"
        "try { if (fs.readFileSync('{secret}', 'utf8').includes('geheim')) console.log('ESCAPED') } catch (e) { console.log(e.code) }\n"
        "try { process.kill({victim}, 0); console.log('ESCAPED') } catch (e) { console.log(e.code) }\n"
        "const s = net.connect({port}, '127.0.0.1', () => { console.log('ESCAPED'); s.destroy() }); s.on('error', e => console.log(e.code))",
    ),
]  # fmt: skip


OWN = frozenset({
    "read the list of users", "list the home folder",  # /etc/passwd, and the path to the user's tools
    "connect by IPv6", "listen", "send a datagram", "netlink socket",  # the container has its own network
    "write one's own memory through /proc", "memory that no process has", "System V memory", "dump core",  # no memory limit
    "map other users in", "keep a capability", "become root",  # for root: it stays root without capabilities and cannot gain any
})  # fmt: skip
"""Allowed for a contained agent, unlike `coder.execute_code`: none of it reaches the host."""
