"""Prepares a new worktree: copies or links files that git does not have, then runs set-up commands once.

Configured by `[workspace] copy`, `link` and `setup`, which need a person's approval. Set-up commands run in the sandbox like acceptance
commands, but with a network: a Makefile or script that they start may have been written by an agent in an earlier task."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from remit.core.errors import Misused, Unavailable
from remit.core.settings import Settings, WorkspaceSettings
from remit.runtime.verify import Acceptance, AcceptanceSite, run_acceptance
from remit.system.beneath import resolve_inside
from remit.system.threads import off_loop

SETUP_SECONDS = 900.0


async def prepare_folder(folder: Path, root: Path, settings: Settings, *, seconds: float, marks: Mapping[str, str]) -> None:
    """Copy files and run set-up commands. `marks`: see `AcceptanceSite`. Raises `Unavailable` if a file is missing or a command fails."""
    await off_loop(share_files, folder, root, settings.workspace)
    error = (await run_setup(folder, root, settings, seconds=min(seconds, SETUP_SECONDS), marks=marks)).error
    if error is not None:
        raise Unavailable(
            error.message.replace("Acceptance command", "[workspace] setup:", 1),
            advice=f"Fix the command. {error.recommendation.partition('. ')[2]}",
        )


async def run_setup(folder: Path, root: Path, settings: Settings, *, seconds: float, marks: Mapping[str, str]) -> Acceptance:
    """Run the set-up commands. `marks`: see `AcceptanceSite`."""
    site = AcceptanceSite(folder=folder, root=root, settings=settings, is_asked_here=True, has_network=True, marks=marks)
    commands = settings.workspace.setup
    if commands:
        await site.require()
    return await run_acceptance(commands, site, seconds_left=seconds)


def share_files(folder: Path, root: Path, rules: WorkspaceSettings) -> None:
    """Copy and link files that git does not have. Blocking."""
    for name in rules.copy:
        source, target = _places(folder, root, name, "copy")
        if not os.path.lexists(target):
            if source.is_dir() and not source.is_symlink():
                shutil.copytree(source, target, symlinks=True)
            else:
                shutil.copy2(source, target, follow_symlinks=False)
    for name in rules.link:
        source, target = _places(folder, root, name, "link")
        if not os.path.lexists(target):
            target.symlink_to(source)


def _places(folder: Path, root: Path, name: str, key: str) -> tuple[Path, Path]:
    """Source and target, both inside, also if an agent has put links on the way there."""
    if os.path.isabs(name) or ".." in Path(name).parts:
        raise Misused(f"[workspace] {key}: {name} is not a path inside the project.", advice="Name it relative to the project's root.")
    above, last = os.path.split(os.path.normpath(name))
    source, target = (resolve_inside(place, above) / last for place in (root, folder))
    if not os.path.lexists(source):
        raise Unavailable(f"[workspace] {key}: {name} does not exist in the project.", advice=f"Create it, or take it out of {key}.")
    target.parent.mkdir(parents=True, exist_ok=True)
    return source, target
