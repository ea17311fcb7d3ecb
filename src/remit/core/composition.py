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
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

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


@dataclass(kw_only=True)
class Step(Composition, ABC):
    """One step of a composition: a call, or a group of steps. Never changed; not frozen, because that doubles the cost of making one."""

    KEY: ClassVar[str]
    """The key that identifies its JSON form."""
    id: str = ""
    """Name for references from other steps; empty: only its position."""

    @property
    def inner(self) -> "tuple[Step, ...]":
        return ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]: ...
    def values(self) -> Iterable[Any]:
        """Values that may contain references, without inner steps."""
        return ()


@dataclass(kw_only=True)
class CallStep(Step):
    KEY = "call"
    request: Request
    has_references: bool = field(default=True, compare=False)
    """False: its parameters are given to the agent as they are."""
    has_options: bool = field(default=True, compare=False)
    """False: it is an agent and its parameters, nothing else."""

    def to_dict(self) -> dict[str, Any]:
        asked = self.request
        fields: dict[str, Any] = {"call": asked.agent}
        if asked.parameters:
            fields["parameters"] = dict(asked.parameters)
        if options := asked.options():
            plain = asked.to_dict()
            fields |= {name: plain[name] for name in options}
        return _plain(self, fields)

    def values(self) -> Iterable[Any]:
        return (self.request.parameters,)


@dataclass(kw_only=True)
class SequenceStep(Step):
    """Runs steps in order while they complete."""

    KEY = "sequence"
    steps: tuple[Step, ...]
    result: Any = None
    """The reference that gives its data; None: a list of the data of its steps."""

    @property
    def inner(self) -> tuple[Step, ...]:
        return self.steps

    def to_dict(self) -> dict[str, Any]:
        result = {} if self.result is None else {"result": self.result}
        return _plain(self, {"sequence": [one.to_dict() for one in self.steps], **result})


@dataclass(kw_only=True)
class ParallelStep(Step):
    """Runs all steps at once, at most `limit` at a time; data in step order."""

    KEY = "parallel"
    steps: tuple[Step, ...]
    limit: int | None = None
    need: Need = ALL

    @property
    def inner(self) -> tuple[Step, ...]:
        return self.steps

    def to_dict(self) -> dict[str, Any]:
        return _plain(self, {"parallel": [one.to_dict() for one in self.steps], **_bounds(self)})


@dataclass(kw_only=True)
class EachStep(Step):
    """Runs the same step for each item of a list; data in item order."""

    KEY = "each"
    step: Step
    over: Any
    """A reference, or a list."""
    into: str = ""
    """The call's parameter that receives the item; empty: the step refers to `item` itself."""
    limit: int | None = None
    need: Need = ALL

    @property
    def inner(self) -> tuple[Step, ...]:
        return (self.step,)

    def to_dict(self) -> dict[str, Any]:
        into = {"into": self.into} if self.into else {}
        return _plain(self, {"each": self.step.to_dict(), "over": self.over, **into, **_bounds(self)})

    def values(self) -> Iterable[Any]:
        return (self.over,)


@dataclass(kw_only=True)
class FirstStep(Step):
    """Runs all steps at once until one completes; cancels the others."""

    KEY = "first"
    steps: tuple[Step, ...]

    @property
    def inner(self) -> tuple[Step, ...]:
        return self.steps

    def to_dict(self) -> dict[str, Any]:
        return _plain(self, {"first": [one.to_dict() for one in self.steps]})


@dataclass(kw_only=True)
class BestStep(Step):
    """Runs the same call several times at once and selects one result."""

    KEY = "best"
    step: CallStep
    of: int
    by: str = BY_ACCEPT
    """`accept`: the first that passes its acceptance commands; `vote`: the most frequent data; else the agent that judges."""

    @property
    def inner(self) -> tuple[Step, ...]:
        return (self.step,)

    def to_dict(self) -> dict[str, Any]:
        return _plain(self, {"best": self.step.to_dict(), "of": self.of, "by": self.by})


def _plain(step: Step, fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "id": step.id} if step.id else fields


def _bounds(step: ParallelStep | EachStep) -> dict[str, Any]:
    fields: dict[str, Any] = {} if step.limit is None else {"limit": step.limit}
    return fields if step.need == ALL else {**fields, "need": step.need}


# ---- made by programs

StepLike = str | Request | Step
"""The name of an agent, `call(…)`, or steps."""


def sequence(*steps: StepLike, result: object = None, **named: StepLike) -> SequenceStep:
    """Run steps in order; the first that does not complete ends the sequence. A keyword is the id of its step.

    Data: a list of the data of the steps; with `result`, the value of that reference."""
    return SequenceStep(steps=_steps(steps, named), result={"$": result} if isinstance(result, str | int) else result)


def parallel(*steps: StepLike, limit: int | None = None, need: Need = ALL, **named: StepLike) -> ParallelStep:
    """Run all steps at once, at most `limit` at a time. Completes when `need` of them complete; data in step order."""
    return ParallelStep(steps=_steps(steps, named), limit=limit, need=need)


def each(step: StepLike, /, *, over: object, into: str = "", limit: int | None = None, need: Need = ALL) -> EachStep:
    """Run one step for each item of `over`, a reference such as "0#/files" or a list. The item is its parameter
    `into`, or `{"$": "item"}`."""
    return EachStep(step=_step(step), over=_over(over), into=into, limit=limit, need=need)


def first(*steps: StepLike, **named: StepLike) -> FirstStep:
    """Run all steps at once. The first that completes is the result; the others are cancelled."""
    return FirstStep(steps=_steps(steps, named))


def best(of: int, asked: str | Request, /, *, by: str = BY_ACCEPT) -> BestStep:
    """`best(3, call("claude", task="…", accept=["pytest -q"]))`: run several candidates at once and select one.

    `by`: `accept`, `vote`, or the name of an agent that judges them. Only the work of the selected one is kept."""
    step = _step(asked)
    if not isinstance(step, CallStep):
        raise Misused("best takes one call.", advice='Write best(3, call("agent", …)).')
    return BestStep(step=step, of=of, by=by)


def _steps(steps: Iterable[StepLike], named: Mapping[str, StepLike]) -> tuple[Step, ...]:
    return (*map(_step, steps), *(replace(_step(one), id=name) for name, one in named.items()))


def _step(asked: StepLike) -> Step:
    if isinstance(asked, Step):
        return asked
    if isinstance(asked, Request):
        return CallStep(request=asked)
    return CallStep(request=call(asked))


def _over(over: object) -> object:
    return {"$": over} if isinstance(over, str | int) and not isinstance(over, bool) else over


# ---- read from JSON, and checked before anything runs

_BOUNDS = ("limit", "need")
_KEYS: Mapping[str, tuple[str, ...]] = {
    "call": ("parameters", *sorted(OPTIONS)),
    "sequence": ("result",),
    "parallel": _BOUNDS,
    "each": ("over", "into", *_BOUNDS),
    "first": (),
    "best": ("of", "by"),
}
"""Keys allowed beside `id`, by the key of the step's kind."""
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
        if kind == "call":
            options = OPTIONS & document.keys()
            request = _request(document, options, where)
            is_open = self._has_references and has_references(request.parameters)
            return CallStep(request=request, id=id_, has_references=is_open, has_options=bool(options))
        return self._build(kind, document, place, where, id_)

    def _build(self, kind: str, document: Mapping[str, Any], place: Place, where: str, id_: str) -> Step:
        match kind:
            case "each":
                if "over" not in document:
                    raise _fault(where, "each needs `over`, a reference or a list", 'Write e.g. "over": "0#/files".')
                into = document.get("into") or ""
                if not isinstance(into, str):
                    raise _fault(where, f"into is the name of a parameter, not {shorten(repr(into), 60)}", "")
                inner, over = self.step(document["each"], (*place, 0)), _over(document["over"])
                return EachStep(step=inner, over=over, into=into, id=id_, **_bounds_from(document, None, where))
            case "parallel":
                steps = self._list(document, kind, place, where)
                return ParallelStep(steps=steps, id=id_, **_bounds_from(document, len(steps), where))
            case "best":
                inner = self.step(document["best"], (*place, 0))
                if not isinstance(inner, CallStep):
                    raise _fault(where, "best takes one call", _HOW)
                return BestStep(step=inner, id=id_, **_candidates_from(document, where))
            case "first":
                return FirstStep(steps=self._list(document, kind, place, where), id=id_)
            case _:
                result = document.get("result")
                result = {"$": result} if isinstance(result, str | int) else result
                return SequenceStep(steps=self._list(document, kind, place, where), result=result, id=id_)

    def _list(self, document: Mapping[str, Any], kind: str, place: Place, where: str) -> tuple[Step, ...]:
        steps = document[kind]
        if not isinstance(steps, list | tuple) or not steps:
            raise _fault(where, f"{kind} is a list of steps with at least one in it", _HOW)
        return tuple(self._plain_call(one) or self.step(one, (*place, number)) for number, one in enumerate(steps))

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


def _bounds_from(document: Mapping[str, Any], count: int | None, where: str) -> dict[str, Any]:
    """`count`: how many steps there are; None: not known yet."""
    bounds = {name: document[name] for name in _BOUNDS if document.get(name) is not None}
    limit, need = bounds.get("limit", 1), bounds.get("need", ALL)
    if not _is_number(limit, 1):
        raise _fault(where, f"limit is a whole number of at least 1, not {limit!r:.60}", "")
    if need not in (ALL, ANY) and not _is_number(need, 1):
        raise _fault(where, f"need is all, any or a number, not {need!r:.60}", "")
    if count is not None and isinstance(need, int) and need > count:
        raise _fault(where, f"need is {need}, but there are {count} steps", "")
    return bounds


def _candidates_from(document: Mapping[str, Any], where: str) -> dict[str, Any]:
    of, by = document.get("of", 3), document.get("by", BY_ACCEPT)
    if not _is_number(of, 2) or of > MAX_CANDIDATES:
        raise _fault(where, f"of is a whole number from 2 to {MAX_CANDIDATES}, not {of!r:.60}", "")
    if not isinstance(by, str) or not by:
        raise _fault(where, f"by is {BY_ACCEPT}, {BY_VOTE} or the name of an agent, not {by!r:.60}", "")
    return {"of": of, "by": by}


def _is_number(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


# ---- the steps of a composition


def walk(step: Step) -> Iterator[Step]:
    """A step and all steps inside it, in order."""
    waiting = [step]
    while waiting:
        step = waiting.pop()
        yield step
        waiting += step.inner[::-1]


def name_of(step: Step, root: Step) -> str:
    """The name of a step of `root` in messages."""
    waiting: list[tuple[Place, Step]] = [((), root)]
    for place, one in waiting:
        if one is step:
            return words_for(place, one.id)
        waiting += [((*place, number), inner) for number, inner in enumerate(one.inner)]
    return words_for((), step.id)


def requests_in(root: Step) -> Iterator[tuple[Step, Request]]:
    """Every call, including the judge's, with its step."""
    for step in walk(root):
        if isinstance(step, CallStep):
            yield step, step.request
        elif isinstance(step, BestStep) and step.by not in (BY_ACCEPT, BY_VOTE):
            yield step, Request(step.by, {})


def sessions_in(root: Step) -> Iterator[tuple[Step, str]]:
    """Every referenced session, with its step."""
    for step in walk(root):
        if step.__class__ is CallStep and not step.has_references:
            continue
        for reference in references_in(list(step.values())):
            if is_session_id(reference.step):
                yield step, reference.step


_NO_IDS = frozenset[str]()


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
        after = frozenset([step.id]) if step.id else _NO_IDS
        if isinstance(step, CallStep):
            if step.has_references:
                self.check_references(step.request.parameters, words_for(place, step.id))
            return after
        where = words_for(place, step.id)
        self.check_references(list(step.values()), where)
        if isinstance(step, SequenceStep):
            scope = replace(self, positions=0)
            for number, one in enumerate(step.steps):
                if one.__class__ is not CallStep or one.has_references or one.id:
                    scope = replace(scope, positions=number)
                    scope = replace(scope, ids=scope.ids | scope.check(one, (*place, number)))
            scope = replace(scope, positions=len(step.steps))
            if step.result is not None:
                scope.check_references(step.result, f"{where}, result")
            return after | scope.ids
        if isinstance(step, EachStep):
            self._check_each(step, place, where)
            return after
        for number, one in enumerate(step.inner):
            if one.__class__ is CallStep and not (one.has_references or one.id):
                continue
            inside = self.check(one, (*place, number))
            after |= inside if isinstance(step, ParallelStep) else frozenset()
        return after

    def _check_each(self, step: EachStep, place: Place, where: str) -> None:
        if isinstance(step.over, Mapping):
            if not any(True for _ in references_in(step.over)):
                raise _fault(where, "over is a reference or a list", 'Write e.g. "over": "0#/files".')
        elif not isinstance(step.over, list | tuple):
            raise _fault(where, f"over is a reference or a list, not {shorten(repr(step.over), 60)}", 'Write e.g. "over": "0#/files".')
        if step.into and not isinstance(step.step, CallStep):
            raise _fault(where, "into needs a call; steps inside refer to the item themselves", 'Write {"$": "item"} in their parameters.')
        if step.into and isinstance(step.step, CallStep) and step.into in step.step.request.parameters:
            raise _fault(
                where, f"the call has the parameter {step.into!r:.60} already", "Name another parameter in into, or leave it out there."
            )
        inside = (value for one in walk(step.step) for value in one.values())
        if not step.into and not any(one.step == ITEM for one in references_in(list(inside))):
            raise _fault(where, "no step inside takes the item", 'Name the parameter in into, or write {"$": "item"}.')
        replace(self, has_item=True).check(step.step, (*place, 0))

    def check_references(self, value: Any, where: str) -> None:
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
                earlier = "no step comes" if last < 0 else "only step 0 comes" if last == 0 else f"only steps 0 to {last} come"
                advice = "Refer to a step that has ended by then."
                raise _fault(where, f"it refers to step {int(step)}, but {earlier} before it in its sequence", advice)
        elif step != ITEM and step not in self.ids and not is_session_id(step):
            if step in self.all_ids:
                raise _fault(
                    where, f"it refers to {step!r}, which has not certainly ended by then", "Put it before this step, in a sequence."
                )
            close = difflib.get_close_matches(step, self.ids, n=1)
            hint = f"Did you mean {close[0]}?" if close else f"There are {', '.join(sorted(self.ids))}." if self.ids else ""
            raise _fault(
                where, f"it refers to {step!r:.80}, which is not the id of a step", hint or "Refer to a step by its position or id."
            )

    def _check_input(self, reference: Reference, where: str) -> None:
        name = reference.pointer.split("/")[1].replace("~1", "/").replace("~0", "~") if reference.pointer else ""
        if name and name not in self.inputs:
            raise _fault(where, f"it refers to the input {name!r:.60}, which is not given", "Declare it in [parameters] of the flow.")
