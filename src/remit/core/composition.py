"""Compositions: several calls declared as one delegation. Values, their JSON form, and validation before anything runs.

    {"sequence": [
        {"call": "worker.list_files", "parameters": {"path": "src"}, "id": "files"},
        {"each": "reviewer", "over": "files#/files", "into": "path", "limit": 4, "need": "all"},
        {"parallel": [{"call": "linter"}, {"call": "tests", "timeout": 600}]},
        {"first": [{"call": "fast"}, {"call": "thorough"}]},
    ]}

The calls are `Request`s; their parameters may contain references (`core.references`). The built-in agent `compose.run` runs them."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from pydantic_core import to_json

from remit.core.errors import Misused
from remit.core.ids import is_session_id
from remit.core.references import INPUT, ITEM, Reference, has_references, references_in
from remit.core.request import OPTIONS, Composition, Request, call
from remit.core.text import shorten

MAX_STEPS = 1000
"""Maximum calls and groups of calls in one composition."""
MAX_NESTING = 20
ALL, ANY = "all", "any"
MAX_CANDIDATES = 16
BY_ACCEPT, BY_VOTE = "accept", "vote"
_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_RESERVED = (ITEM, INPUT)
Need = str | int
"""How many must complete: `all`, `any`, or a number."""
_KEYS: Mapping[str, tuple[str, ...]] = {
    "call": ("parameters", *sorted(OPTIONS)),
    "sequence": ("result",),
    "parallel": ("limit", "need"),
    "each": ("over", "into", "limit", "need"),
    "first": (),
    "best": ("of", "by"),
}
"""Keys allowed beside `id`, by the key of the step's kind."""
_OF_ONE_STEP = ("each", "best")


@dataclass(kw_only=True)
class Step(Composition):
    """One step of a composition: a call, or a group of steps. Never changed; not frozen, because that doubles the cost of making one."""

    id: str = ""
    """Name for references from other steps; empty: only its position."""


@dataclass(kw_only=True)
class CallStep(Step):
    request: Request
    has_references: bool = field(default=True, compare=False)
    """False: its parameters are given to the agent as they are."""
    has_options: bool = field(default=True, compare=False)
    """False: it is an agent and its parameters, nothing else."""

    def to_dict(self) -> dict[str, Any]:
        asked = self.request
        parameters = {"parameters": dict(asked.parameters)} if asked.parameters else {}
        options = asked.options()
        plain = asked.to_dict() if options else {}
        return {"call": asked.agent, **parameters, **{name: plain[name] for name in options}, **({"id": self.id} if self.id else {})}


@dataclass(kw_only=True)
class GroupStep(Step):
    kind: str
    """`sequence`, `parallel`, `each`, `first` or `best`."""
    steps: tuple[Step, ...]
    """Of `each` and `best`, the one step that is repeated."""
    result: Any = None
    """Of a sequence, the reference that gives its data; None: a list of the data of its steps."""
    limit: int | None = None
    """How many run at once."""
    need: Need = ALL
    over: Any = None
    """Of `each`, a reference or a list."""
    into: str = ""
    """The call's parameter that receives the item; empty: the step refers to `item` itself."""
    of: int = 3
    """Number of candidates."""
    by: str = BY_ACCEPT
    """`accept`: the first that passes its acceptance commands; `vote`: the most frequent data; else the agent that judges."""

    def to_dict(self) -> dict[str, Any]:
        steps = [one.to_dict() for one in self.steps]
        given = {name: value for name in _KEYS[self.kind] if (value := getattr(self, name)) != _DEFAULTS[name]}
        return {self.kind: steps[0] if self.kind in _OF_ONE_STEP else steps, **given, **({"id": self.id} if self.id else {})}


_DEFAULTS = {one.name: one.default for one in fields(GroupStep)}

# ---- made by programs

StepLike = str | Request | Step
"""The name of an agent, `call(…)`, or steps."""


def sequence(*steps: StepLike, result: object = None, **named: StepLike) -> GroupStep:
    """Run steps in order; the first that does not complete ends the sequence. A keyword is the id of its step.

    Data: a list of the data of the steps; with `result`, the value of that reference."""
    return GroupStep(kind="sequence", steps=_steps(steps, named), result=_as_reference(result))


def parallel(*steps: StepLike, limit: int | None = None, need: Need = ALL, **named: StepLike) -> GroupStep:
    """Run all steps at once, at most `limit` at a time. Completes when `need` of them complete; data in step order."""
    return GroupStep(kind="parallel", steps=_steps(steps, named), limit=limit, need=need)


def each(step: StepLike, /, *, over: object, into: str = "", limit: int | None = None, need: Need = ALL) -> GroupStep:
    """Run one step for each item of `over`, a reference such as "0#/files" or a list. The item is its parameter
    `into`, or `{"$": "item"}`. Data in item order."""
    return GroupStep(kind="each", steps=(_step(step),), over=_as_reference(over), into=into, limit=limit, need=need)


def first(*steps: StepLike, **named: StepLike) -> GroupStep:
    """Run all steps at once. The first that completes is the result; the others are cancelled."""
    return GroupStep(kind="first", steps=_steps(steps, named))


def best(of: int, asked: str | Request, /, *, by: str = BY_ACCEPT) -> GroupStep:
    """`best(3, call("claude", task="…", accept=["pytest -q"]))`: run several candidates at once and select one.

    `by`: `accept`, `vote`, or the name of an agent that judges them. Only the work of the selected one is kept."""
    return GroupStep(kind="best", steps=(_step(asked),), of=of, by=by)


def _steps(steps: Iterable[StepLike], named: Mapping[str, StepLike]) -> tuple[Step, ...]:
    return (*map(_step, steps), *(replace(_step(one), id=name) for name, one in named.items()))


def _step(asked: StepLike) -> Step:
    if isinstance(asked, Step):
        return asked
    return CallStep(request=asked if isinstance(asked, Request) else call(asked))


def _as_reference(value: object) -> object:
    """A reference may be written as its text alone."""
    return {"$": value} if isinstance(value, str | int) and not isinstance(value, bool) else value


# ---- read from JSON, and checked before anything runs


def _is_number(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


_RULES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "into": ("the name of a parameter", lambda value: isinstance(value, str)),
    "limit": ("a whole number of at least 1", lambda value: _is_number(value, 1)),
    "need": ("all, any or a number", lambda value: value in (ALL, ANY) or _is_number(value, 1)),
    "of": (f"a whole number from 2 to {MAX_CANDIDATES}", lambda value: _is_number(value, 2) and value <= MAX_CANDIDATES),
    "by": (f"{BY_ACCEPT}, {BY_VOTE} or the name of an agent", lambda value: isinstance(value, str) and value != ""),
}
"""What a key of a group must be."""
_KINDS = frozenset(_KEYS)
_KNOWN = {kind: frozenset((kind, "id", *more)) for kind, more in _KEYS.items()}
_PLAIN_CALL = frozenset({"call", "parameters"})


def composition_from(document: Mapping[str, Any]) -> Step:
    """Parse and check the JSON form, with its values in `input`; agents are not checked here. Raises `Misused` and names the step."""
    inputs = document.get(INPUT, {})
    if not isinstance(inputs, Mapping):
        raise Misused(f"input must be an object, not {shorten(repr(inputs), 60)}.", advice='Write e.g. "input": {"path": "src"}.')
    try:
        reading = _DocumentReader(has_references=b'"$' in to_json(document, fallback=repr))
    except ValueError:  # too deep, or not JSON: the fault is found at its place
        reading = _DocumentReader(has_references=True)
    root = reading.step({name: value for name, value in document.items() if name != INPUT}, ())
    _Scope(reading.ids, frozenset(inputs)).check(root, ())
    return root


Place = tuple[int | str, ...]
"""The positions of the enclosing steps and of the step itself, outermost first; when it runs, with the items it runs for."""


def dotted(place: Place) -> str:
    """`1[3].0`"""
    return str(place[0]) if len(place) == 1 else ".".join(map(str, place)).replace(".[", "[")


def words_for(place: Place, id: str = "") -> str:
    """`Step 1.0 (files)`: the name of a step in messages."""
    return (f"Step {dotted(place)}" if place else "The composition") + (f" ({id})" if id else "")


class _DocumentReader:
    def __init__(self, *, has_references: bool) -> None:
        self._has_references = has_references
        self._count = 0
        self.ids: set[str] = set()

    def step(self, document: object, place: Place) -> Step:
        self._count += 1
        if self._count > MAX_STEPS:
            raise _fault(words_for(place), f"a composition has at most {MAX_STEPS} steps", "Give `each` a list, or split it into several.")
        if len(place) > MAX_NESTING:
            raise _fault(words_for(place), f"steps are nested at most {MAX_NESTING} levels deep", "Make a flow of the inner steps.")
        if isinstance(document, str):
            document = {"call": document}
        if not isinstance(document, Mapping):
            raise _fault(words_for(place), f"a step is an object, not {shorten(repr(document), 60)}", _HOW)
        kinds = _KINDS & document.keys()
        if len(kinds) != 1:
            given = f", not {' and '.join(sorted(kinds))}" if kinds else ""
            raise _fault(words_for(place), f"a step has exactly one of {', '.join(_KEYS)}{given}", _HOW)
        (kind,) = kinds
        id_ = self._id(document["id"], place) if "id" in document else ""
        where = words_for(place, id_)
        if not document.keys() <= _KNOWN[kind]:
            raise _unknown_key(document, kind, where)
        if kind != "call":
            return self._group(kind, document, place, where, id_)
        options = OPTIONS & document.keys()
        request = _request(document, options, where)
        is_open = self._has_references and has_references(request.parameters)
        return CallStep(request=request, id=id_, has_references=is_open, has_options=bool(options))

    def _group(self, kind: str, document: Mapping[str, Any], place: Place, where: str, id_: str) -> GroupStep:
        inner = document[kind]
        if kind in _OF_ONE_STEP:
            steps: tuple[Step, ...] = (self.step(inner, (*place, 0)),)
        elif isinstance(inner, list | tuple) and inner:
            steps = tuple(self._plain_call(one) or self.step(one, (*place, number)) for number, one in enumerate(inner))
        else:
            raise _fault(where, f"{kind} is a list of steps with at least one in it", _HOW)
        options = {name: document[name] for name in _KEYS[kind] if document.get(name) is not None}
        for name, value in options.items():
            if name in _RULES and not _RULES[name][1](value):
                raise _fault(where, f"{name} is {_RULES[name][0]}, not {value!r:.60}", "")
        options |= {name: _as_reference(options[name]) for name in ("over", "result") if name in options}
        group = GroupStep(kind=kind, steps=steps, id=id_, **options)
        if kind == "parallel" and isinstance(group.need, int) and group.need > len(steps):
            raise _fault(where, f"need is {group.need}, but there are {len(steps)} steps", "")
        if kind == "best" and not isinstance(steps[0], CallStep):
            raise _fault(where, "best takes one call", _HOW)
        if kind == "each" and (fault := _fault_of_each(group, steps[0])):
            raise _fault(where, fault, 'E.g. {"each": "reviewer", "over": "0#/files", "into": "path"}; {"$": "item"} is the item.')
        return group

    def _plain_call(self, document: Any) -> CallStep | None:
        """The frequent step, without detours: a call with parameters and nothing else."""
        if self._has_references or document.__class__ is not dict or document.keys() != _PLAIN_CALL or self._count >= MAX_STEPS:
            return None
        agent, parameters = document["call"], document["parameters"]
        if agent.__class__ is not str or not agent or parameters.__class__ is not dict:
            return None
        self._count += 1
        return CallStep(request=Request(agent, parameters), has_references=False, has_options=False)

    def _id(self, value: object, place: Place) -> str:
        if value == "":
            return ""
        if not isinstance(value, str) or not _ID.fullmatch(value) or value in _RESERVED or is_session_id(value):
            advice = f"Use letters, digits, - and _, beginning with a letter; {' and '.join(_RESERVED)} have a meaning of their own."
            raise _fault(words_for(place), f"{shorten(repr(value), 80)} cannot be the id of a step", advice)
        if value in self.ids:
            raise _fault(words_for(place, value), f"two steps have the id {value!r}", "Give each its own.")
        self.ids.add(value)
        return value


_HOW = 'E.g. {"sequence": [{"call": "worker.list_files", "parameters": {"path": "."}}, {"call": "x", "parameters": {"of": {"$": "0"}}}]}.'


def _fault(where: str, fault: str, advice: str, code: str = "INVALID_PARAMETERS") -> Misused:
    return Misused(f"{where}: {fault}.", code=code, advice=advice)


def _fault_of_each(step: GroupStep, inner: Step) -> str:
    """Empty: it can run."""
    try:
        is_reference = isinstance(step.over, Mapping) and any(True for _ in references_in(step.over))
        takes_item = any(one.step == ITEM for one in references_in([_values_of(one) for one in walk(inner)]))
    except Misused:
        return ""  # a malformed reference: it is named with the step that has it
    if not is_reference and not isinstance(step.over, list | tuple):
        return "each needs `over`; over is a reference or a list"
    if not step.into:
        return "" if takes_item else "no step inside takes the item"
    if not isinstance(inner, CallStep):
        return "into needs a call; steps inside refer to the item themselves"
    return f"the call has the parameter {step.into!r:.60} already" if step.into in inner.request.parameters else ""


def _unknown_key(document: Mapping[str, Any], kind: str, where: str) -> Misused:
    known = (kind, "id", *_KEYS[kind])
    name = next(name for name in document if name not in known)
    close = difflib.get_close_matches(str(name), known, n=1)
    advice = f"Did you mean {close[0]}? " if close else ""
    advice += "Parameters of the agent go into `parameters`." if kind == "call" else f"There are {', '.join(known)}."
    return _fault(where, f"unknown key {shorten(repr(name), 60)}", advice)


def _request(document: Mapping[str, Any], options: Iterable[str], where: str) -> Request:
    parameters = document.get("parameters")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise _fault(where, f"parameters are an object, not {shorten(repr(parameters), 60)}", "")
    try:
        return call(document["call"], parameters=parameters, **{name: document[name] for name in options})
    except Misused as fault:
        raise _fault(where, fault.message.rstrip("."), fault.advice, fault.code) from None


# ---- the steps of a composition


def walk(step: Step) -> Iterator[Step]:
    """A step and all steps inside it, in order."""
    waiting = [step]
    while waiting:
        step = waiting.pop()
        yield step
        if isinstance(step, GroupStep):
            waiting += step.steps[::-1]


def _values_of(step: Step) -> Any:
    """Values that may contain references, without inner steps."""
    return step.request.parameters if isinstance(step, CallStep) else step.over if isinstance(step, GroupStep) else None


def name_of(step: Step, root: Step) -> str:
    """The name of a step of `root` in messages."""
    waiting: list[tuple[Place, Step]] = [((), root)]
    for place, one in waiting:
        if one is step:
            return words_for(place, one.id)
        if isinstance(one, GroupStep):
            waiting += [((*place, number), inner) for number, inner in enumerate(one.steps)]
    return words_for((), step.id)


def requests_in(root: Step) -> Iterator[tuple[Step, Request]]:
    """Every call, including the judge's, with its step."""
    for step in walk(root):
        if isinstance(step, CallStep):
            yield step, step.request
        elif isinstance(step, GroupStep) and step.kind == "best" and step.by not in (BY_ACCEPT, BY_VOTE):
            yield step, Request(step.by, {})


def sessions_in(root: Step) -> Iterator[tuple[Step, str]]:
    """Every referenced session, with its step."""
    for step in walk(root):
        if isinstance(step, CallStep) and not step.has_references:
            continue
        for reference in references_in([_values_of(step)]):
            if is_session_id(reference.step):
                yield step, reference.step


@dataclass(frozen=True)
class _Scope:
    """Steps that can be referenced at one place: those that have certainly ended by then."""

    all_ids: set[str]
    inputs: frozenset[str]
    ids: frozenset[str] = frozenset()
    positions: int = 0
    """Finished steps of the innermost sequence."""
    has_item: bool = False

    def check(self, step: Step, place: Place) -> frozenset[str]:
        """The ids that can be referenced after `step`. Raises `Misused`."""
        after = frozenset([step.id] if step.id else [])
        where = words_for(place, step.id)
        if not isinstance(step, CallStep) or step.has_references:
            self._check_references([_values_of(step)], where)
        if not isinstance(step, GroupStep):
            return after
        scope = replace(self, positions=0) if step.kind == "sequence" else replace(self, has_item=True) if step.kind == "each" else self
        for number, one in enumerate(step.steps):
            if isinstance(one, CallStep) and not (one.has_references or one.id):
                continue
            if step.kind == "sequence":
                scope = replace(scope, positions=number)
                scope = replace(scope, ids=scope.ids | scope.check(one, (*place, number)))
            else:
                inside = scope.check(one, (*place, number))
                after |= inside if step.kind == "parallel" else frozenset()
        if step.kind != "sequence":
            return after
        replace(scope, positions=len(step.steps))._check_references([step.result], f"{where}, result")
        return after | scope.ids

    def _check_references(self, value: Any, where: str) -> None:
        try:
            for reference in references_in(value):
                self._check_reference(reference, where)
        except Misused as fault:
            if fault.message.startswith(where):
                raise
            raise _fault(where, fault.message, fault.advice) from None

    def _check_reference(self, reference: Reference, where: str) -> None:
        step = reference.step
        if reference.is_of_return and (step in (ITEM, INPUT) or is_session_id(step)):
            raise _fault(where, f"{step} has no return to refer to", 'Write {"$": …} for its data.')
        if step == ITEM and not self.has_item:
            raise _fault(where, "`item` exists only inside `each`", "")
        if step == INPUT:
            self._check_input(reference, where)
        elif step.isascii() and step.isdecimal():
            if int(step) >= self.positions:
                last = self.positions - 1
                earlier = f"only steps up to {last} come" if last >= 0 else "no step comes"
                advice = "Refer to a step that has ended by then."
                raise _fault(where, f"it refers to step {int(step)}, but {earlier} before it in its sequence", advice)
        elif step != ITEM and step not in self.ids and not is_session_id(step):
            if step in self.all_ids:
                raise _fault(
                    where, f"it refers to {step!r}, which has not certainly ended by then", "Put it before this step, in a sequence."
                )
            known = f"There are {', '.join(sorted(self.ids))}." if self.ids else "Refer to a step by its position or id."
            raise _fault(where, f"it refers to {step!r:.80}, which is not the id of a step", known)

    def _check_input(self, reference: Reference, where: str) -> None:
        name = reference.pointer.split("/")[1].replace("~1", "/").replace("~0", "~") if reference.pointer else ""
        if name and name not in self.inputs:
            raise _fault(where, f"it refers to the input {name!r:.60}, which is not given", "Declare it in [parameters] of the flow.")
