"""Programs that remit starts on its own ignore the files of an unapproved clone."""

import os
import subprocess
from pathlib import Path

import pytest

from remit.agents.containment.gateway import server_name
from remit.core.protected_paths import Protection, protection_of
from support import cli


def program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("command", [["doctor"], ["agents", "--detect"], ["init", "--yes"]], ids=" ".join)
def test_version_commands_run_outside_the_clone(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version managers and Bun run programs named by files in the working directory."""
    clone, log = tmp_path / "clone", tmp_path / "log"
    clone.mkdir()
    for name in ("claude", "node"):
        program(tmp_path / "bin" / name, f"pwd >> {log}; echo 1.2.3")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    cli.run(*command, cwd=clone)
    assert set(log.read_text().split()) == {"/"}


def test_git_signature_program_named_by_an_archive_is_not_run(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()

    def git(*words: str, text: str | None = None) -> str:
        ran = subprocess.run(["git", *words], cwd=clone, input=text, capture_output=True, text=True, check=True)
        return ran.stdout.strip()

    (clone / "a.py").write_text("x = 1\n")
    for words in (["init", "-q"], ["config", "user.name", "A"], ["config", "user.email", "a@localhost"], ["add", "a.py"]):
        git(*words)
    head = f"tree {git('write-tree')}\nauthor A <a@localhost> 0 +0000\ncommitter A <a@localhost> 0 +0000\n"
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n"
    git("update-ref", "HEAD", git("hash-object", "-t", "commit", "-w", "--stdin", text=f"{head}{signature}\nBegin\n"))
    program(tmp_path / "gpg.sh", f"touch {tmp_path}/ran")
    for key, value in (("log.showSignature", "true"), ("gpg.program", str(tmp_path / "gpg.sh")), ("core.hooksPath", "/dev/null")):
        git("config", key, value)
    cli.run("review", cwd=clone)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "path", ["bunfig.toml", ".volta/hooks.json", "sub/.nvim.lua", ".direnv/x.rc", ".kiro/hooks/a", "hooks/push-to-checkout"]
)
def test_files_executed_on_entering_or_opening_a_directory_are_protected(path: str) -> None:
    assert protection_of(path) is Protection.TOOLS


def hello(*names: tuple[int, str]) -> bytes:
    listed = b"".join(bytes([kind]) + len(name).to_bytes(2) + name.encode() for kind, name in names)
    data = len(listed).to_bytes(2) + listed
    extension = b"\0\0" + len(data).to_bytes(2) + data
    body = b"\3\3" + bytes(32) + b"\0" + b"\0\2\x13\x01" + b"\1\0" + len(extension).to_bytes(2) + extension
    message = b"\1" + len(body).to_bytes(3) + body
    return b"\x16\3\1" + len(message).to_bytes(2) + message


def test_client_hello_yields_a_server_name_only_when_unambiguous() -> None:
    assert server_name(hello((0, "api.example.com"))) == "api.example.com"
    assert server_name(hello((1, "api.example.com"), (0, "evil.example"))) is None
    assert server_name(hello((0, "api.example.com"), (0, "evil.example"))) is None
