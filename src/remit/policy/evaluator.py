"""Evaluates rules in Cedar's JSON form without loading Cedar: the part of the language that the default rules and most others use.

Each rule becomes a function of the request. Its results are those of Cedar, which a property test compares. Rules that use anything else
(arithmetic, records, extension types, hierarchies) raise `NotSupported`, and Cedar itself is asked.
"""

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_LARGEST = 2**63 - 1
_CONTEXT = {"Var": "context"}
_COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class NotSupported(Exception):
    """The rule uses more of Cedar than is known here."""


class EvaluationError(Exception):
    """A condition has no value: a fact is missing, or of another type."""


class Entity(NamedTuple):
    type: str
    id: str


class Variables(NamedTuple):
    context: Mapping[str, Any]
    principal: Entity
    resource: Entity


Expression = Callable[[Variables], Any]
Condition = Callable[[Variables], bool]


def is_supported(fact: Any) -> bool:
    """Whether a fact is of a type known here: text, a boolean, a whole number of 64 bits, or a list of texts."""
    kind = fact.__class__
    if kind is list:
        return all(one.__class__ is str for one in fact)
    return kind is str or kind is bool or (kind is int and -_LARGEST <= fact <= _LARGEST)


def compile_rule(body: Mapping[str, Any]) -> Condition:
    """Whether a rule is satisfied, given that its action fits."""
    parts: list[Condition] = [_scope(name, body[name]) for name in ("principal", "resource") if body[name].get("op") != "All"]
    for condition in body.get("conditions", ()):
        test = _test(condition["body"])
        parts.append(test if condition["kind"] == "when" else _not(test))
    return lambda variables: all(part(variables) for part in parts)


def _scope(name: str, scope: Mapping[str, Any]) -> Condition:
    """No entity is in another, so `in` is equality."""
    wanted = scope.get("entity") or scope.get("in", {}).get("entity")
    entity = None if wanted is None else _entity(wanted)
    kind = scope.get("entity_type")
    if scope["op"] not in ("==", "in", "is"):
        raise NotSupported(scope["op"])

    def fits(variables: Variables) -> bool:
        given: Entity = getattr(variables, name)
        return (kind is None or given.type == kind) and (entity is None or given == entity)

    return fits


def _entity(written: Mapping[str, Any]) -> Entity:
    inner = written.get("__entity", written)
    return Entity(inner["type"], inner["id"])


def _compile(node: Any) -> Expression:
    if not isinstance(node, dict) or len(node) != 1:
        raise NotSupported
    ((name, inner),) = node.items()
    if name == "Value":
        return _literal(inner)
    if name == "Var" and inner in ("principal", "resource"):
        return operator.attrgetter(inner)
    if name == "Set":
        items = [_compile(one) for one in inner]
        return lambda variables: frozenset(_tagged(item(variables)) for item in items)
    if name in (".", "has") and inner["left"] == _CONTEXT and isinstance(inner["attr"], str):
        return _fact(inner["attr"]) if name == "." else _has(inner["attr"])
    if name == "if-then-else":
        test, then, otherwise = _test(inner["if"]), _compile(inner["then"]), _compile(inner["else"])
        return lambda variables: then(variables) if test(variables) else otherwise(variables)
    if name == "!":
        return _not(_test(inner["arg"]))
    if name in ("&&", "||"):
        return _chain(name, node)
    if name in ("==", "!="):
        return _equality(name, inner["left"], inner["right"])
    if name == "like":
        return _like(_compile(inner["left"]), inner["pattern"])
    if name in _BINARY:
        return _BINARY[name](name, _compile(inner["left"]), _compile(inner["right"]))
    raise NotSupported(name)


def _literal(value: Any) -> Expression:
    if isinstance(value, dict):
        if "__entity" not in value:
            raise NotSupported
        entity = _entity(value)
        return lambda _: entity
    return lambda _: value


def _fact(name: str) -> Expression:
    def fact(variables: Variables) -> Any:
        try:
            value = variables.context[name]
        except KeyError:
            raise EvaluationError(f"the request has no fact {name!r}") from None
        return frozenset((str, one) for one in value) if value.__class__ is list else value

    return fact


def _has(name: str) -> Expression:
    return lambda variables: name in variables.context


def _test(node: Any) -> Condition:
    """An expression that must be a boolean."""
    expression = _compile(node)
    if not _BOOLEAN.isdisjoint(node):
        return expression

    def test(variables: Variables) -> bool:
        value = expression(variables)
        if value is True or value is False:
            return value
        raise EvaluationError(f"a boolean is needed, not {type(value).__name__}")

    return test


def _not(test: Condition) -> Condition:
    return lambda variables: not test(variables)


def _chain(name: str, node: Any) -> Condition:
    """`a || b || c`, which Cedar nests to the left, as one loop."""
    tests: list[Condition] = []
    while name in node:
        tests.append(_test(node[name]["right"]))
        node = node[name]["left"]
    tests.append(_test(node))
    tests.reverse()
    ends_at = name == "||"

    def chain(variables: Variables) -> bool:
        for test in tests:
            if test(variables) is ends_at:
                return ends_at
        return not ends_at

    return chain


def _equality(name: str, left: Any, right: Any) -> Condition:
    """Values of different types are never equal."""
    first, second, wanted = _compile(left), _compile(right), name == "=="
    if right.get("Value").__class__ is str:
        text = right["Value"]
        return lambda variables: (first(variables) == text) is wanted
    return lambda variables: (_tagged(first(variables)) == _tagged(second(variables))) is wanted


def _like(expression: Expression, pattern: list[Any]) -> Expression:
    matches = re.compile("".join(".*" if part == "Wildcard" else re.escape(part["Literal"]) for part in pattern), re.DOTALL).fullmatch
    return lambda variables: matches(_typed(expression(variables), str)) is not None


def _typed(value: Any, kind: type) -> Any:
    if value.__class__ is not kind:
        raise EvaluationError(f"{kind.__name__} is needed, not {type(value).__name__}")
    return value


def _tagged(value: Any) -> tuple[type, Any]:
    """Python takes True for 1, Cedar does not."""
    return (value.__class__, value)


def _comparison(name: str, left: Expression, right: Expression) -> Expression:
    compare = _COMPARISONS[name]
    return lambda variables: compare(_typed(left(variables), int), _typed(right(variables), int))


def _membership(name: str, left: Expression, right: Expression) -> Expression:
    def member(variables: Variables) -> bool:
        values, other = _typed(left(variables), frozenset), right(variables)
        if name == "contains":
            return _tagged(other) in values
        others = _typed(other, frozenset)
        return others <= values if name == "containsAll" else not others.isdisjoint(values)

    return member


_BINARY: dict[str, Callable[[str, Expression, Expression], Expression]] = {
    **dict.fromkeys(_COMPARISONS, _comparison),
    **dict.fromkeys(("contains", "containsAll", "containsAny"), _membership),
}
_BOOLEAN = frozenset({"!", "&&", "||", "==", "!=", "has", "like", *_BINARY})
