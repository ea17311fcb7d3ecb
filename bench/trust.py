"""trust: overhead of approvals when a project is opened, compared with the same project with everything approved in code."""

import os
import tempfile
from pathlib import Path

from bench.figures import Figure, median, milliseconds
from bench.sizes import Sizes
from bench.speed import timed_sequence
from remit import Remit
from remit.system.trust import approve, items_of

TARGET_SECONDS = 0.005
_CODERS = '[agents.claude]\nkind = "claude"\n[agents.codex]\nkind = "codex"\n'
_PAGE = "---\nname: {name}\ndescription: Reviews changes.\n---\nReview the change.\n"


async def measure(sizes: Sizes, wanted: frozenset[str]) -> list[Figure]:
    took: dict[bool, list[float]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(prefix="remit-bench-") as name:
        root = Path(name, "project")
        before = {variable: os.environ.pop(variable) for variable in ("XDG_STATE_HOME", "REMIT_TRUST") if variable in os.environ}
        os.environ["XDG_STATE_HOME"] = str(Path(name, "state"))
        try:
            _write(root)
            approve(root, items_of(root))

            async def opened(is_given: bool) -> None:
                async with Remit.open(root, trust=True if is_given else None) as remit:
                    assert remit.trust.is_complete

            for is_given in took:
                await opened(is_given)  # descriptions and modules are read once
            for _ in range(sizes.rounds * sizes.commands):  # alternate: a short disturbance of the machine then affects few pairs
                for is_given, times in took.items():
                    times += await timed_sequence(lambda: opened(is_given), 1)  # noqa: B023 - awaited here
        finally:
            os.environ.pop("XDG_STATE_HOME")
            os.environ.update(before)
    added = median([one - floor for one, floor in zip(took[False], took[True], strict=True)])
    return [
        Figure(section="trust", what="floor: opening a project, approved by the program, p50", measured=milliseconds(median(took[True]))),
        Figure(section="trust", what="opening it with approvals of 33 items, p50", measured=milliseconds(median(took[False]))),
        Figure(
            section="trust",
            what="added by approvals, p50",
            measured=milliseconds(added),
            target=f"≤ {TARGET_SECONDS * 1e3:g} ms",
            is_met=added <= TARGET_SECONDS,
        ),
    ]


def _write(root: Path) -> None:
    """Write coding agents with project hooks, commands, agent files and rules, like a project after some months."""
    for folder in (".remit/agents", ".remit/commands", ".claude/hooks"):
        (root / folder).mkdir(parents=True)
    commands = "".join(f'[agents.run{number}]\ncommand = "./tool.sh {number}"\n' for number in range(8))
    (root / "remit.toml").write_text(f"max_depth = 5\n{_CODERS}{commands}")
    (root / "tool.sh").write_text("exit 0\n" * 500)
    (root / ".claude/settings.json").write_text("{}")
    (root / ".claude/hooks/check.sh").write_text("exit 0\n")
    (root / ".remit/policy.cedar").write_text("permit (principal, action, resource);\n")
    for number in range(10):
        (root / f".remit/agents/reviewer{number}.md").write_text(_PAGE.format(name=f"reviewer{number}"))
        (root / f".remit/commands/check{number}.md").write_text("Check the change.\n")
    (root / ".remit/agents/greet.py").write_text(
        "from remit import agent\n\n\n@agent('greet')\nasync def greet() -> str:\n    return 'Hi.'\n"
    )
