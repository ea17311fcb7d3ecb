"""A new major version of a package, or a replaced package, is never installed automatically."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKED = ROOT / "tests" / "tools" / "requirements.txt"
OF_DEVELOPERS = "dev"


def declared(*extras: str) -> list[Requirement]:
    listed = [*PROJECT["dependencies"], *(one for extra in extras for one in PROJECT["optional-dependencies"][extra])]
    return [one for one in map(Requirement, listed) if one.name != "remit"]


def locked() -> dict[str, tuple[Version, int]]:
    """Version and number of hashes of each package."""
    text = "\n".join(line for line in LOCKED.read_text().splitlines() if not line.startswith("#")).replace("\\\n", " ")
    found = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, version = re.match(r"([\w.-]+)==(\S+)", line).groups()  # type: ignore[union-attr]
        found[canonicalize_name(name)] = (Version(version), len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", line)))
    return found


def test_runtime_dependencies_have_an_upper_bound() -> None:
    extras = [name for name in PROJECT["optional-dependencies"] if name != OF_DEVELOPERS]
    unbounded = [str(one) for one in declared(*extras) if not any(part.operator in ("<", "==") for part in one.specifier)]
    assert unbounded == []


def test_test_requirements_are_pinned_with_hashes() -> None:
    found = locked()
    assert [name for name, (_, hashes) in found.items() if not hashes] == []
    wanted = {canonicalize_name(one.name): one for one in declared(*PROJECT["optional-dependencies"])}
    assert sorted(wanted.keys() - found.keys()) == []
    wrong = {name: str(one) for name, one in wanted.items() if not one.specifier.contains(found[name][0], prereleases=True)}
    assert wrong == {}, "pyproject.toml has changed: regenerate tests/tools/requirements.txt with the command at its top"
    assert "--require-hashes" in (ROOT / "Makefile").read_text()
