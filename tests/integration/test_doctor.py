"""`remit doctor` reports the installation with advice for missing parts, and exits 0 either way."""

import contextlib
import importlib.metadata
import json
import os
import re
import sqlite3
import tomllib
from pathlib import Path
from typing import Any

import pytest

from remit.cli.doctor import EXTRAS
from support import cli


def doctor(folder: Path, *arguments: str, **environment: str) -> cli.Result:
    return cli.run("doctor", *arguments, cwd=folder, env={**os.environ, **environment})


def findings(reported: str) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in json.loads(reported)["findings"]}


def test_doctor_names_the_active_sandbox(tmp_path: Path) -> None:
    ran = doctor(tmp_path)
    assert ran.returncode == 0, ran.stderr
    for text in ("Python", "SQLite", "bubblewrap", "Landlock", "seccomp", "in force", "git", "policy", "database"):
        assert text in ran.stdout
    assert not (tmp_path / ".remit").exists()


def test_unreadable_settings_and_missing_parts_are_findings_with_advice(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text("policy_mode = 'lenient'\n")
    found = findings(doctor(tmp_path, "--json", PATH=str(tmp_path)).stdout)
    assert (found["git"]["mark"], found["Node"]["mark"], found["none"]["part"]) == ("missing", "missing", "coding agents")
    assert all(one["advice"] for one in found.values() if one["mark"] == "missing")
    assert found["settings"]["mark"] == "worse"
    assert "policy_mode" in found["settings"]["found"]


def test_every_extra_is_detected_by_its_modules(tmp_path: Path) -> None:
    """`remit[all]` is installed for the tests, so nothing may be reported missing; each module belongs to a package in pyproject."""
    found = findings(doctor(tmp_path, "--json").stdout)
    extras = [one for one in found.values() if one["part"] == "extras"]
    assert {one["name"]: one["mark"] for one in extras} == {one["name"]: "ok" for one in extras}
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    brought = importlib.metadata.packages_distributions()
    for extra, (modules, _) in EXTRAS.items():
        named = {re.split(r"[\[>=<]", package)[0].replace("-", "_").lower() for package in project[extra]}
        for module in modules.split():
            assert named & {one.replace("-", "_").lower() for one in brought[module.partition(".")[0]]}, (extra, module)


@pytest.mark.parametrize("damage", [b"this is no database, and as long as a header is. " * 40, None], ids=["damaged", "of a newer remit"])
def test_unusable_database_is_a_finding(tmp_path: Path, damage: bytes | None) -> None:
    assert cli.run("delegate", "worker.list_files", cwd=tmp_path).code == 0
    database = tmp_path / ".remit" / "remit.db"
    assert findings(doctor(tmp_path, "--json").stdout)["database"]["mark"] == "ok"
    if damage is None:
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA user_version = 9999")
    else:
        for file in database.parent.glob("remit.db*"):
            file.unlink()
        database.write_bytes(damage)
    refused = cli.run("history", "--json", cwd=tmp_path)
    assert refused.code == 7
    found = findings(doctor(tmp_path, "--json").stdout)["database"]
    assert (found["mark"], found["found"]) == ("worse", refused.json()["error"]["message"])
    assert found["advice"]
