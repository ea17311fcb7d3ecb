"""The agents of a project, for its tests: those of `.remit/agents`, which is not a package and cannot be imported.

    AGENTS = load_agents(Path(__file__).parents[1] / ".remit" / "agents")
    async with Remit.open(tmp_path, agents=[AGENTS["words.folder"], Scripted("words.count")]) as remit:
        ...

Loads as `Remit.open` does, but for a test: a file that is broken raises, where the directory lists it and goes on.
"""

from pathlib import Path

from remit.agents.function import FunctionAgent
from remit.agents.python_files import agents_of_file
from remit.core.errors import Misused


def load_agents(path: str | Path) -> dict[str, FunctionAgent]:
    """The agents declared in a Python file, or in those of a folder, by name. A file's own exception comes out as it is."""
    place = Path(path).resolve()
    if not place.exists():
        raise Misused(f"There is no file or folder {path}.", advice='Give one like Path(__file__).parents[1] / ".remit" / "agents".')
    found: dict[str, FunctionAgent] = {}
    for file in _files(place):
        for agent in agents_of_file(file):
            name = agent.spec.name
            if name in found:
                raise Misused(f"Two agents are named {name!r}: {found[name].spec.source} and {agent.spec.source}.", advice="Rename one.")
            found[name] = agent
    return found


def _files(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(file for file in place.glob("*.py") if not file.name.startswith("_"))
    return [place]
