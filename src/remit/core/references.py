"""References: parameters of one step of a composition that name the result of another. They are not expressions.

`{"$": "STEP#/pointer"}` is the value at a JSON pointer in the data of STEP; `{"$": "STEP"}` is all of its data. STEP is the position of a
step in its sequence, the id of a step, a session id, `item` inside `each`, or `input` for the parameters of a flow. `{"$return":
"STEP#/pointer"}` refers to the return of a step: status, summary, artifacts, errors, data. `{"$$": value}` is `value` itself."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from remit.core.errors import Misused
from remit.core.text import shorten

REFERENCE = "$"
RETURN = "$return"
LITERAL = "$$"
SCALARS = frozenset({str, int, float, bool, type(None)})
OWN_KEYS = frozenset({REFERENCE, RETURN, LITERAL})
"""The one key of an object that is a reference or a literal."""
ITEM = "item"
"""The item of this call, inside `each`."""
INPUT = "input"
"""The parameters of a flow."""
HOW = 'Write {"$": "STEP#/pointer"}, e.g. {"$": "0#/files"}; {"$$": …} is a literal.'


class Reference(NamedTuple):
    step: str
    pointer: str = ""
    """A JSON pointer (RFC 6901); empty: all of it."""
    is_of_return: bool = False
    """Refers to the return of the step instead of its data."""

    def __str__(self) -> str:
        return f"{self.step}#{self.pointer}" if self.pointer else self.step


def reference_in(holder: Mapping[str, Any]) -> Reference:
    """Parse an object that is a reference. Raises `Misused`."""
    is_of_return = RETURN in holder
    value = holder[RETURN if is_of_return else REFERENCE]
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise Misused(f"a reference is text, not {shorten(repr(value), 60)}", advice=HOW)
    step, _, pointer = value.partition("#")
    if not step:
        raise Misused(f"the reference {shorten(value, 60)!r} names no step", advice=HOW)
    if pointer and not pointer.startswith("/"):
        raise Misused(f"the pointer of {shorten(value, 60)!r} must begin with /", advice=HOW)
    return Reference(step, pointer, is_of_return)


def references_in(value: Any) -> Iterator[Reference]:
    """All references at any depth. Raises `Misused` for a malformed one."""
    if isinstance(value, Mapping):
        if own := OWN_KEYS & value.keys():
            if len(value) > 1:
                raise Misused(f"{min(own)} must be the only key of its object", advice=HOW)
            if LITERAL not in own:
                yield reference_in(value)
            return
        value = value.values()
    elif not isinstance(value, list | tuple):
        return
    for one in value:
        if isinstance(one, Mapping | list | tuple):
            yield from references_in(one)


def has_references(value: Any) -> bool:
    """Whether `resolve` would change anything."""
    if value.__class__ in SCALARS:
        return False
    if value.__class__ is dict or isinstance(value, Mapping):
        return not OWN_KEYS.isdisjoint(value) or any(map(has_references, value.values()))
    return isinstance(value, list | tuple) and any(map(has_references, value))


def resolve(value: Any, look_up: Callable[[Reference], Any]) -> Any:
    """`value` with each reference replaced by the data from `look_up`, and literals unwrapped."""
    if isinstance(value, Mapping):
        if LITERAL in value:
            return value[LITERAL]
        if not OWN_KEYS.isdisjoint(value):
            return look_up(reference_in(value))
        return {name: resolve(one, look_up) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [resolve(one, look_up) for one in value]
    return value


def point_into(data: Any, pointer: str) -> Any:
    """The value at a JSON pointer. Raises `Misused` with the failing part."""
    found = data
    for token in pointer.split("/")[1:]:
        name = token.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and name in found:
            found = found[name]
        elif isinstance(found, list) and name.isascii() and name.isdecimal() and int(name) < len(found):
            found = found[int(name)]
        else:
            raise Misused(f"{pointer!r:.200} leads nowhere at {name!r:.60}")
    return found
