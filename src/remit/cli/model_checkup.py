"""Which language models are configured, for `remit doctor`, and with `--online` which of them answer: each is asked a small question,
all at once, a few seconds at most. No key is shown."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from remit.cli.checkup import Finding, Mark
from remit.core.errors import RemitError

if TYPE_CHECKING:
    from remit.cli.model_list import Listed
    from remit.settings import Settings

TRIAL_SECONDS = 5.0
LARGE_BYTES = 2_000_000_000
"""A local model larger than this is not loaded only to see whether it can be."""


def model_findings(root: Path, seconds: float = TRIAL_SECONDS, *, is_online: bool = False) -> Iterator[Finding]:
    from remit.cli.model_list import keys_present, listed
    from remit.settings import load_settings

    try:
        settings = load_settings(root)
    except RemitError:  # told among the findings of the project
        return
    found = listed(settings, root)
    if not found:
        keys = ", ".join(variable for variable, _ in keys_present())
        yield Finding(
            part="models",
            name="no model",
            mark=Mark.GOOD,
            found="no language model is configured, and none is needed" + (f"; there is a key in {keys}" if keys else ""),
            advice='For `remit ask` and model agents: model = "anthropic:…" in remit.toml, or "local:/path/to/file.gguf".',
        )
        return
    yield from _tried(settings, root, found, seconds) if is_online else map(_configured, found)


def _configured(one: "Listed") -> Finding:
    if one.fault:
        said = one.fault.removeprefix(f"{one.name} ")
        return Finding(part="models", name=one.name, mark=Mark.WORSE, found=said, advice=one.advice)
    advice = "`remit doctor --online` asks every model."
    return Finding(part="models", name=one.name, mark=Mark.GOOD, found="configured; not contacted", advice=advice)


def _tried(settings: "Settings", root: Path, found: "list[Listed]", seconds: float) -> Iterator[Finding]:
    from remit.cli.model_trials import try_models

    large = {one.name: size for one in found if one.is_local and (size := _size(one, root)) > LARGE_BYTES}
    names = [one.name for one in found if not one.fault and one.name not in large]
    trials = {one.name: one for one in try_models(settings, root, names, seconds)}
    for one in found:
        if one.name in large:
            said = f"a local model of {large[one.name] / 1e9:.1f} GB; not loaded now"
            yield Finding(part="models", name=one.name, mark=Mark.GOOD, found=said, advice=f"`remit models test {one.name}` loads it.")
            continue
        trial = trials.get(one.name)
        fault, advice = (one.fault, one.advice) if trial is None else (trial.fault, trial.advice)
        if fault or trial is None:
            said = fault.removeprefix(f"{one.name} ")
            yield Finding(part="models", name=one.name, mark=Mark.WORSE, found=said, advice=advice or f"`remit models test {one.name}`")
        else:
            price = "" if one.price is not None else "; its price is unknown, so no money is counted"
            yield Finding(part="models", name=one.name, mark=Mark.GOOD, found=f"answers, in {trial.seconds:.1f} s{price}")


def _size(one: "Listed", root: Path) -> int:
    from remit.models.local import find_weights

    try:
        return find_weights(one.meant.model, root).stat().st_size if one.meant is not None else 0
    except (RemitError, OSError):
        return 0
