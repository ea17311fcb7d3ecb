"""Python functions as agents: `@agent(...)`, parameters validated against the signature, results converted to JSON.

A `FunctionAgent` is the declaration, and executes async functions on the event loop. `agents.thread` and `agents.process` execute the same
declaration on threads and in processes."""

import dataclasses
import difflib
import functools
import hashlib
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any, Literal, Never, NoReturn, get_overloads, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter, ValidationError, create_model

from remit.core.agents import AgentSpec, Answers, Isolation, WorkspaceKind, agent_name, only_reads
from remit.core.cache import cache_seconds
from remit.core.context import BlockingContext, Context, DelegationFacts
from remit.core.errors import InvalidReturn, Misused
from remit.core.jsonable import safe_repr
from remit.core.parameters import WrongParameters, declared_names
from remit.core.policy import Effect, Fact
from remit.core.result import Return
from remit.core.text import shorten

__all__ = ["FunctionAgent", "agent"]

_PLAIN_CLASSES = (NoneType, bool, int, float, str)
_OURS = "remit.builtin."
"""Modules whose signatures are read on first use of an agent: using one operation declares all operations of a target."""


class FunctionAgent:
    """A function and its declaration. Calling it calls the function, so that it can be tested directly."""

    __slots__ = (
        "_declared", "_known", "_names", "_result_class", "_result_validator", "_validator",
        "function", "is_async", "spec", "takes_context",
    )  # fmt: skip
    _known: frozenset[str]
    _names: tuple[str, ...]
    _result_class: Any
    """A class whose instances need no further check."""
    _result_validator: Any
    """Validator of the return annotation; None: nothing to check."""
    _validator: Any
    spec: AgentSpec
    takes_context: bool

    def __init__(self, function: Callable[..., Any], spec: AgentSpec) -> None:
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self._declared = spec
        if not function.__module__.startswith(_OURS):
            self._read_signature()

    def _read_signature(self) -> None:
        hints = _hints(self.function, self.name)
        model, self.takes_context = _parameters_model(self.function, self.name, hints)
        returned = Any if self.function.__module__.startswith(_OURS) else hints.get("return", Any)
        self._result_class = returned if returned in _PLAIN_CLASSES else None
        self._result_validator = _result_validator(returned, self.name)
        self._names = tuple(model.model_fields)
        self._known = frozenset(self._names)
        self._validator = model.__pydantic_validator__
        if unknown := [name for name in self._declared.reads if name not in self._known and model.model_config["extra"] == "forbid"]:
            raise Misused(f"{self.name}: reads names {', '.join(unknown)}, which are not its parameters.")
        self.spec = dataclasses.replace(self._declared, parameters_schema=_schema(model))

    def __getattr__(self, name: str) -> Any:
        """Read the signature of a built-in agent on its first use."""
        if name not in FunctionAgent.__annotations__:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        self._read_signature()
        return getattr(self, name)

    @property
    def name(self) -> str:
        return self._declared.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<agent {self.spec.name} ({self.spec.isolation}) {self.spec.source}>"

    def check(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Keyword arguments for the function. Raises `Misused` with each fault and the allowed values.

        `maxDepth` is accepted for `max_depth`; a declared name takes precedence."""
        if not parameters and not self._names:
            return {}
        if not parameters.keys() <= self._known:
            parameters = declared_names(parameters, self._names, self.spec.name)
        try:
            checked = self._validator.validate_python(parameters)
        except ValidationError as error:
            raise WrongParameters(self.spec.name, _faults(error, self._names), self._names) from None
        return {**checked.__dict__, **(checked.__pydantic_extra__ or {})}

    def check_result(self, value: Any) -> None:
        """Check a result against the function's annotation. The value is not changed. Raises `InvalidReturn`."""
        if self._result_validator is None or isinstance(value, Return):
            return
        try:
            self._result_validator.validate_python({"data": value}, strict=True)
        except ValidationError as error:
            faults = [f"{where}{fault}" for where, fault in _faults(error, ())]
            raise InvalidReturn(faults, original=safe_repr(value)) from None

    def perform(self, ctx: Context, arguments: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        call: Coroutine[Any, Any, Any] = self.function(ctx, **arguments) if self.takes_context else self.function(**arguments)
        return call if self._result_validator is None else self._checked(call)

    async def _checked(self, call: Coroutine[Any, Any, Any]) -> Any:
        value = await call
        if value.__class__ is not self._result_class:
            self.check_result(value)
        return value


@overload
def agent(name: Callable[..., Any], /) -> FunctionAgent: ...
@overload
def agent(
    name: str | None = None,
    *,
    timeout: float | None = None,
    isolation: Isolation | str | None = None,
    resumable: bool = False,
    requires_artifacts: bool = False,
    retries: int = 0,
    description: str = "",
    idle: float | None = None,
    answers: Answers | str = Answers.VALUE,
    workspace: WorkspaceKind | str = WorkspaceKind.SHARED,
    merge: bool | Literal["queue"] = False,
    slots: int | None = None,
    spread: bool = False,
    effects: Sequence[Effect | str] = (),
    acts_on: Mapping[str, Fact | str] = MappingProxyType({}),
    languages: Sequence[str] = (),
    requires: Sequence[str] = (),
    cache: str | float | None = None,
    reads: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], FunctionAgent]: ...
def agent(name: Any = None, **declared: Any) -> Any:
    """Declare a function as an agent: `@agent("digest", timeout=60)`."""
    if callable(name) and not isinstance(name, str):
        return _declare(name, None, {})
    _require_known(declared)
    return lambda function: _declare(function, name, declared)


def _declare(function: Callable[..., Any], name: str | None, declared: dict[str, Any]) -> FunctionAgent:
    if isinstance(function, FunctionAgent):
        function = function.function
    if not inspect.isfunction(function):
        raise Misused(f"@agent takes a function, not {function!r}.", advice="Wrap it in a function.")
    is_async = inspect.iscoroutinefunction(function)
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise Misused(f"{function.__name__} is a generator.", advice="Return the result, and stream pieces of it with ctx.emit(…).")
    isolation = _choice(Isolation, "isolation", declared.pop("isolation", None) or (Isolation.INLINE if is_async else Isolation.THREAD))
    if isolation is Isolation.INLINE and not is_async:
        raise Misused(f"{function.__name__} is not async, so it cannot run inline.", advice='Use isolation="thread" or "process".')
    if isolation is Isolation.THREAD and is_async:
        raise Misused(f"{function.__name__} is async and needs no thread.", advice='Use isolation="inline" or "process".')
    workspace = _choice(WorkspaceKind, "workspace", declared.pop("workspace", WorkspaceKind.SHARED))
    if declared.get("merge") and workspace is not WorkspaceKind.WORKTREE:
        raise Misused(f"{function.__name__}: merge requires a worktree.", advice='Use workspace="worktree".')
    spec = AgentSpec(
        name=agent_name(name or function.__name__),
        description=declared.pop("description", "") or (inspect.getdoc(function) or "").partition("\n")[0],
        timeout_seconds=declared.pop("timeout", None),
        idle_seconds=declared.pop("idle", None),
        isolation=isolation,
        answers=_choice(Answers, "answers", declared.pop("answers", Answers.VALUE)),
        workspace=workspace,
        effects=tuple(_choice(Effect, "effects", effect) for effect in declared.pop("effects", ())),
        acts_on={name: _choice(Fact, "acts_on", kind) for name, kind in declared.pop("acts_on", {}).items()},
        languages=_names("languages", declared.pop("languages", ())),
        requires=_names("requires", declared.pop("requires", ())),
        source=f"{function.__module__}:{function.__qualname__}",
        cache_seconds=None if (cache := declared.pop("cache", None)) is None else cache_seconds(cache),
        reads=_names("reads", declared.pop("reads", ())),
        **declared,
    )
    if only_reads(spec) and not function.__module__.startswith(_OURS):
        spec = dataclasses.replace(spec, fingerprint=_fingerprint(function))
    return FunctionAgent(function, spec)


def _fingerprint(function: Callable[..., Any]) -> str:
    """Digest of its file and its line there, or of its code without a file: results of other code are not reused."""
    code = function.__code__
    try:
        text = b"%d\n%b" % (code.co_firstlineno, Path(code.co_filename).read_bytes())
    except OSError:
        text = repr((code.co_code, code.co_consts, code.co_names)).encode()
    return hashlib.sha256(text).hexdigest()[:32]


def _require_known(declared: Mapping[str, Any]) -> None:
    known = inspect.signature(get_overloads(agent)[-1]).parameters
    for option in declared:
        if option not in known:
            close = difflib.get_close_matches(option, known, n=1)
            advice = f"Did you mean {close[0]}?" if close else f"Use {', '.join(known)}."
            raise Misused(f"Unknown option {option!r} of @agent.", advice=advice)


def _choice(kind: Any, option: str, value: Any) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise Misused(f"{option} {value!r} is unknown.", advice=f"Use {', '.join(kind)}.") from None


def _names(option: str, value: Any) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list | tuple | set | frozenset) else ()
    if not all(isinstance(name, str) and name for name in names) or (not names and value not in ((), [], None)):
        raise Misused(f"{option} must be names, not {value!r:.60}.", advice=f'Write {option}=("…", "…").')
    return names


def _hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise Misused(
            f"{name}: an annotation cannot be resolved: {error}.", advice="Import the name where the function is defined."
        ) from None


def _parameters_model(function: Callable[..., Any], name: str, hints: Mapping[str, Any]) -> tuple[type[BaseModel], bool]:
    """A model of the signature, and whether the first parameter is the context."""
    signature = inspect.signature(function)
    fields: dict[str, Any] = {}
    extra = "forbid"
    takes_context = False
    for position, parameter in enumerate(signature.parameters.values()):
        annotation = hints.get(parameter.name, Any)
        if position == 0 and (parameter.name == "ctx" or _is_context(annotation)):
            takes_context = True
            _require_fitting_context(function, name, annotation)
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            extra = "allow"
        elif parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            raise Misused(f"{name}: parameter {parameter.name} cannot be given by name.", advice="Agents get their parameters by name.")
        else:
            fields[parameter.name] = (annotation, ... if parameter.default is inspect.Parameter.empty else parameter.default)
    config = ConfigDict(extra=extra, arbitrary_types_allowed=True, protected_namespaces=())  # type: ignore[typeddict-item]
    try:
        return create_model(f"Parameters of {name}", __config__=config, **fields), takes_context
    except (PydanticUserError, NameError, ValueError) as error:
        raise Misused(f"{name}: its parameters cannot be checked: {error}", advice="Rename or annotate the parameter.") from None


def _result_validator(annotation: Any, name: str) -> Any:
    if annotation in (Any, Never, NoReturn) or (inspect.isclass(annotation) and issubclass(annotation, Return)):
        return None
    fields: dict[str, Any] = {"data": (annotation, ...)}
    try:
        return create_model(f"Result of {name}", __config__=ConfigDict(arbitrary_types_allowed=True), **fields).__pydantic_validator__
    except (PydanticUserError, NameError, ValueError) as error:
        raise Misused(f"{name}: its return annotation cannot be checked: {error}", advice="Annotate it with a type.") from None


def _require_fitting_context(function: Callable[..., Any], name: str, annotation: Any) -> None:
    """Async functions get a `Context`, others a `BlockingContext`."""
    given = Context if inspect.iscoroutinefunction(function) else BlockingContext
    if _is_context(annotation) and not issubclass(given, annotation):
        kind = "async, so it gets a Context" if given is Context else "not async, so it gets a BlockingContext"
        raise Misused(f"{name} is {kind}, but annotates {annotation.__name__}.", advice=f"Write ctx: {given.__name__}.")


def _is_context(annotation: Any) -> bool:
    return inspect.isclass(annotation) and issubclass(annotation, DelegationFacts)


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    try:
        return model.model_json_schema()
    except PydanticUserError:
        return {"type": "object"}  # a parameter type that JSON schema cannot express; it is still validated


# ---- declarations of agents in other processes


def spec_to_wire(spec: AgentSpec) -> dict[str, Any]:
    return {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}


def spec_from_wire(wire: object) -> AgentSpec:
    """Raises `Misused`."""
    try:
        return _spec_reader().validate_python(wire)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        raise Misused(f"The declaration of an agent is faulty: {'.'.join(map(str, fault['loc']))}: {fault['msg']}.") from None


@functools.cache
def _spec_reader() -> TypeAdapter[AgentSpec]:
    """Created on first use: most importers never need it."""
    return TypeAdapter(AgentSpec)


# ---- faults of parameters


def _faults(error: ValidationError, names: tuple[str, ...]) -> list[tuple[str, str]]:
    """Locations and faults found by pydantic."""
    faults = []
    for fault in error.errors(include_url=False):
        where, words = ".".join(map(str, fault["loc"])), fault["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        if fault["type"] == "extra_forbidden":
            close = difflib.get_close_matches(where, names, n=1)
            faults.append((where, ": there is no such parameter" + (f" (did you mean {close[0]}?)" if close else "")))
        elif fault["type"] == "missing":
            faults.append((where, ": it is required"))
        else:
            said = words.replace("Input should", " must", 1) if words.startswith("Input should") else f": {words}"
            faults.append((where, f"{said}, not {_short(fault['input'])}"))
    return faults


def _short(value: object) -> str:
    return shorten(repr(value), 60)
