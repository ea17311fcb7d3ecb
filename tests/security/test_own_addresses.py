"""A model that may fetch public pages cannot reach this machine through the public address of one of its interfaces."""

import shutil
import subprocess
import sys

import pytest

SCRIPT = """\
from ipaddress import ip_address
from pathlib import Path
from remit.runtime.policy_facts import url_facts
from remit.system.ip_addresses import classify_address
for address in ("8.8.4.4", "2600::5", "8.8.8.8"):
    print(address, classify_address(ip_address(address)))
print(url_facts("http://8.8.4.4:8080/admin", Path())["address"], url_facts("http://[::ffff:8.8.4.4]/", Path())["address"])
"""
SETUP = "ip link set lo up && ip addr add 8.8.4.4/32 dev lo && ip -6 addr add 2600::5/128 dev lo nodad && exec"


def test_public_address_of_a_local_interface_counts_as_local() -> None:
    if shutil.which("ip") is None or subprocess.run(["unshare", "-rn", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("needs a network namespace")
    command = ["unshare", "-rn", "sh", "-c", f'{SETUP} "$@"', "sh", sys.executable, "-c", SCRIPT]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert found == "8.8.4.4 loopback\n2600::5 loopback\n8.8.8.8 public\nloopback loopback\n"
