"""`[roles]` judged as a whole: which bindings mean nobody, in words. Pure; used by `agents.directory`, which lists them as problems."""

from collections.abc import Collection, Iterator
from difflib import get_close_matches

from remit.agents.builtin.roles import BUILT_INS
from remit.agents.definition import Definition, Kind
from remit.agents.files import Declarations
from remit.agents.modelling import MODEL, names_a_model, why_no_model
from remit.agents.profiles import BUILT_IN, built_in_of
from remit.core.agents import ROLES


def binding_problems(declarations: Declarations, functions: Collection[str]) -> Iterator[str]:
    """A line for each; `functions` are the Python agents that are known."""
    settings = declarations.settings
    for role, bound in settings.roles.items():
        fault = _of_role(role, declarations, functions) or _of_bound(role, bound, declarations, functions)
        if fault:
            yield f"{settings.source_of(f'roles.{role}')}: {fault}"


def _of_role(role: str, declarations: Declarations, functions: Collection[str]) -> str:
    declared = _definition(role, declarations)
    if role in functions or (declared is not None and declared.kind is not Kind.PROFILE):
        return f"{role} is an agent of the project's own that runs by itself, so nothing is bound by this line. Remove it."
    if role in ROLES or declared is not None:
        return ""
    profiles = [name for name, (_, one) in declarations.known.items() if one.kind is Kind.PROFILE]
    return f"there is no role or agent file {role!r}.{_meant(role, [*ROLES, *profiles])} `remit roles` lists them."


def _of_bound(role: str, bound: str, declarations: Declarations, functions: Collection[str]) -> str:
    if bound == BUILT_IN:
        own = _definition(role, declarations)
        has_built_in = role in BUILT_INS if own is None else built_in_of(own) is not None
        return "" if has_built_in else f"{role} has no built-in: it takes a coding agent or a language model."
    found = _definition(bound, declarations)
    if found is not None and found.kind is not Kind.PROFILE:
        return ""
    if found is None and bound == MODEL:
        return "" if declarations.settings.model else "it names the project's language model, and the project names none: add model = …"
    if found is None and names_a_model(bound, declarations.settings):
        return why_no_model(bound, declarations.settings)
    if found is not None:
        return f"{bound!r} is itself an agent file: name the coding agent that is to carry {role} out."
    if bound in functions:
        return f"{bound!r} is a Python function, which is told no instructions: name that function {role!r} itself, and it has the role."
    if bound in ROLES:
        return f"{bound!r} is a role itself: name the coding agent that is to carry {role} out."
    able = [name for name, (_, one) in declarations.known.items() if one.kind is not Kind.PROFILE]
    known = f" Declared are {', '.join(able[:10])}." if able else " No coding agent is declared: `remit agents --detect` prints the lines."
    return f"it names {bound!r}, and there is no such agent.{_meant(bound, [*able, BUILT_IN, MODEL]) or known}"


def _definition(name: str, declarations: Declarations) -> Definition | None:
    found = declarations.known.get(name)
    return None if found is None else found[1]


def _meant(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]}?" if close else ""
