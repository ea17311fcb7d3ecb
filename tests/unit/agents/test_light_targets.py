"""A target is loaded by whoever wants any of its operations: what one operation alone needs must not weigh on the others."""

import json
import subprocess
import sys

HEAVY = (
    "remit.builtin.worker.pages",
    "remit.builtin.worker.web_search",
    "remit.builtin.coder.analysis.",
    "remit.builtin.researcher.",
    "remit.system.sandbox.boxes",
    "remit.system.sandbox.run",
    "remit.system.sandbox.probe",
    "encodings.big5",
)


def _loaded(*modules: str) -> set[str]:
    code = f"import json, sys, {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    return set(json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60).stdout))


def test_loading_the_targets_loads_none_of_their_optional_packages_and_no_parser() -> None:
    loaded = _loaded("remit.builtin.worker", "remit.builtin.researcher", "remit.builtin.coder")
    optional = {"httpcore", "trafilatura", "pypdf", "ddgs", "bm25s", "numpy", "tree_sitter", "lxml"}
    assert not loaded & optional
    assert [name for name in sorted(loaded) if name.startswith(HEAVY)] == []


def test_every_parameter_of_every_operation_says_what_it_is_for() -> None:
    from remit.builtin import loader
    from remit.core.settings import Settings
    from remit.models.client import Models

    bare = []
    for one in [one for target in ("worker", "researcher", "coder") for one in loader(target, Settings(), lambda: Models(Settings()))()]:
        for name, schema in one.spec.parameters_schema["properties"].items():
            if not any(kind.get("description") for kind in (schema, *schema.get("anyOf", ()))):
                bare.append(f"{one.spec.name} {name}")
    assert bare == []
