"""Simulated hosts: network namespaces with one address each, whose connections can be cut. Needs root and `ip` from iproute2.

A proxy simulates a slow connection, because not every kernel can delay packets.
"""

import contextlib
import ctypes
import itertools
import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

CLONE_NEWNET = 0x40000000
T = TypeVar("T")
_numbers = itertools.count()


def enter(host: str) -> None:
    """Move this thread, and the threads and processes that it starts, to `host`."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{host}") as namespace:
        if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"{host} cannot be entered")


def missing() -> str:
    """Reason why this machine cannot create such hosts; empty if it can."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root and `ip` of iproute2"
    name = f"remit-try-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        return f"network namespaces are not allowed here: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=False)
    return ""


class Network:
    """Hosts on one switch, which is also a namespace. The test process has address 1."""

    def __init__(self, *hosts: str) -> None:
        mark = f"{os.getpid() % 100000}n{next(_numbers)}"
        self._switch = f"remit-{mark}-switch"
        self._outside = f"r{mark}"
        self._subnet = f"10.213.{os.getpid() % 250}"
        self._hosts = {name: (f"remit-{mark}-{name}", number) for number, name in enumerate(hosts, start=2)}
        self._ip("netns", "add", self._switch)
        self._ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
        self._ip("-n", self._switch, "link", "set", "switch", "up")
        self._plug(self._outside, None, f"{self._subnet}.1/24", "test")
        for name, (host, number) in self._hosts.items():
            self._ip("netns", "add", host)
            self._ip("-n", host, "link", "set", "lo", "up")
            self._plug("eth0", host, f"{self._subnet}.{number}/24", name)

    @staticmethod
    def _ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def _plug(self, link: str, host: str | None, address: str, port: str) -> None:
        where = [] if host is None else ["-n", host]
        self._ip(*where, "link", "add", link, "type", "veth", "peer", "name", port, "netns", self._switch)
        self._ip("-n", self._switch, "link", "set", port, "master", "switch", "up")
        self._ip(*where, "addr", "add", address, "dev", link)
        self._ip(*where, "link", "set", link, "up")

    def name(self, host: str) -> str:
        return self._hosts[host][0]

    def address(self, host: str) -> str:
        return f"{self._subnet}.{self._hosts[host][1]}"

    def run(self, host: str, function: Callable[[], T]) -> T:
        """Run on a thread that is on `host`; processes that it starts are there too."""
        with ThreadPoolExecutor(1, initializer=enter, initargs=(self.name(host),)) as thread:
            return thread.submit(function).result()

    def cut(self, host: str, server: str) -> None:
        """Drop packets from `server` to `host`; the other direction still works. No connection is closed."""
        self._ip("-n", self.name(server), "route", "add", "blackhole", f"{self.address(host)}/32")

    def restore(self, host: str, server: str) -> None:
        self._ip("-n", self.name(server), "route", "del", "blackhole", f"{self.address(host)}/32")

    def unplug(self, host: str) -> None:
        self._ip("-n", self.name(host), "link", "set", "eth0", "down")

    def plug(self, host: str) -> None:
        self._ip("-n", self.name(host), "link", "set", "eth0", "up")

    def close(self) -> None:
        for words in (["link", "del", self._outside], *(["netns", "del", name] for name, _ in self._hosts.values())):
            subprocess.run(["ip", *words], check=False, capture_output=True)
        subprocess.run(["ip", "netns", "del", self._switch], check=False, capture_output=True)


def network(*hosts: str) -> "contextlib.closing[Network]":
    return contextlib.closing(Network(*hosts))


class Proxy:
    """TCP proxy in front of a port, until `restore`: `cut` closes all connections and refuses new ones, `stall` delivers nothing."""

    def __init__(self, to: int, *, host: str = "127.0.0.1") -> None:
        self._to = (host, to)
        self._is_cut = False
        self._flows = threading.Event()
        self._flows.set()
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                if self._is_cut:
                    client.close()
                    continue
                try:
                    there = socket.create_connection(self._to)
                except OSError:  # the server is down
                    client.close()
                    continue
                self._open |= {client, there}
                for one, other in ((client, there), (there, client)):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                self._flows.wait()
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        self._is_cut = True
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def stall(self) -> None:
        self._flows.clear()

    def restore(self) -> None:
        self._is_cut = False
        self._flows.set()

    def close(self) -> None:
        self.cut()
        self._flows.set()
        self._listening.close()
        for end in self._open:
            end.close()
