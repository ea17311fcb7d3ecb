"""Python functions as agents: `@agent(...)`, parameters checked against the signature, the result made plain.

A `FunctionAgent` is the declaration, and executes async functions on the event loop. `agents.thread` and `agents.process` execute the
same declaration on threads and in processes.
"""

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, PydanticUserError, ValidationError, create_model

from remit.core.agents import AgentSpec, Answers, Isolation, WorkspaceKind, agent_name
from remit.core.context import Context, DelegationFacts
from remit.core.errors import Misused
from remit.core.parameters import WrongParameters, declared_names
from remit.core.policy import Effect, Fact
from remit.core.text import shorten

__all__ = ["FunctionAgent", "agent"]

_OURS = "remit.builtin."
"""Modules whose signatures are read when an agent of theirs is used: all operations of a target are declared to use one of them."""


class FunctionAgent:
    """A function and what was declared of it. Calling it calls the function, so that it can be tested as one."""

    __slots__ = ("_declared", "_known", "_names", "_validator", "function", "is_async", "spec", "takes_context")
    _known: frozenset[str]
    _names: tuple[str, ...]
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
        model, self.takes_context = _parameters_model(self.function, self.name)
        self._names = tuple(model.model_fields)
        self._known = frozenset(self._names)
        self._validator = model.__pydantic_validator__
        self.spec = dataclasses.replace(self._declared, parameters_schema=_schema(model))

    def __getattr__(self, name: str) -> Any:
        """What the signature says, of an agent of ours that is used for the first time."""
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
        """Keyword arguments for the function. Raises `Misused` naming each fault and what is allowed.

        `maxDepth` is `max_depth`, whoever calls; a name as it is declared goes first.
        """
        if not parameters and not self._names:
            return {}
        if not parameters.keys() <= self._known:
            parameters = declared_names(parameters, self._names, self.spec.name)
        try:
            checked = self._validator.validate_python(parameters)
        except ValidationError as error:
            raise wrong_parameters(self.spec.name, error, self._names) from None
        return {**checked.__dict__, **(checked.__pydantic_extra__ or {})}

    async def perform(self, ctx: Context, arguments: dict[str, Any]) -> Any:
        if self.takes_context:
            return await self.function(ctx, **arguments)
        return await self.function(**arguments)


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
    merge: bool = False,
    slots: int | None = None,
    effects: Sequence[Effect | str] = (),
    acts_on: Mapping[str, Fact | str] = MappingProxyType({}),
    languages: Sequence[str] = (),
    operations: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], FunctionAgent]: ...
def agent(name: Any = None, **declared: Any) -> Any:
    """Declare a function as an agent: `@agent("digest", timeout=60)`."""
    if callable(name) and not isinstance(name, str):
        return _declare(name, None, {})
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
        raise Misused(f"{function.__name__}: only what was done in a worktree can be merged.", advice='Use workspace="worktree".')
    spec = AgentSpec(
        name=agent_name(name or function.__name__),
        description=declared.pop("description", "") or (inspect.getdoc(function) or "").partition("\n")[0],
        timeout_seconds=_seconds("timeout", declared.pop("timeout", None)),
        idle_seconds=_seconds("idle", declared.pop("idle", None)),
        isolation=isolation,
        answers=_choice(Answers, "answers", declared.pop("answers", Answers.VALUE)),
        workspace=workspace,
        effects=tuple(_choice(Effect, "effects", effect) for effect in declared.pop("effects", ())),
        acts_on={name: _choice(Fact, "acts_on", kind) for name, kind in declared.pop("acts_on", {}).items()},
        languages=_names("languages", declared.pop("languages", ())),
        operations=tuple(name.removeprefix("/") for name in _names("operations", declared.pop("operations", ()))),
        source=f"{function.__module__}:{function.__qualname__}",
        **declared,
    )
    return FunctionAgent(function, spec)


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


def _seconds(option: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise Misused(f"{option} must be a positive number of seconds, not {value!r}.")
    return float(value)


def _parameters_model(function: Callable[..., Any], name: str) -> tuple[type[BaseModel], bool]:
    """A model of the signature, and whether the first parameter is the context."""
    signature = inspect.signature(function)
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise Misused(
            f"{name}: an annotation cannot be resolved: {error}.", advice="Import the name where the function is defined."
        ) from None
    fields: dict[str, Any] = {}
    extra = "forbid"
    takes_context = False
    for position, parameter in enumerate(signature.parameters.values()):
        annotation = hints.get(parameter.name, Any)
        if position == 0 and (parameter.name == "ctx" or _is_context(annotation)):
            takes_context = True
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


def _is_context(annotation: Any) -> bool:
    return inspect.isclass(annotation) and issubclass(annotation, DelegationFacts)


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    try:
        return model.model_json_schema()
    except PydanticUserError:
        return {"type": "object"}  # a parameter of a type that JSON schema has no word for; it is still checked


def wrong_parameters(name: str, error: ValidationError, names: tuple[str, ...]) -> WrongParameters:
    """What pydantic found, in plain words."""
    faults: dict[tuple[str, str], list[str]] = {}
    """What is demanded, by place and value. Where several kinds would do, pydantic finds a fault with each: told as one."""
    for fault in error.errors(include_url=False):
        where = ".".join(str(part) for number, part in enumerate(fault["loc"]) if not number or not _is_kind(part))
        if fault["type"] == "extra_forbidden":
            close = difflib.get_close_matches(where, names, n=1)
            faults[where, ""] = [": there is no such parameter" + (f" (did you mean {close[0]}?)" if close else "")]
        elif fault["type"] == "missing":
            faults[where, ""] = [": it is required"]
        else:
            faults.setdefault((where, f", not {_short(fault['input'])}"), []).append(f" {_demand(fault['type'], fault['msg'])}")
    return WrongParameters(name, [(where, f"{_joined(demands)}{given}") for (where, given), demands in faults.items()], names)


def _joined(demands: list[str]) -> str:
    """`must be a list` and `must be a mapping` are `must be a list or a mapping`."""
    first, *others = dict.fromkeys(demands)
    return " or ".join([first, *(other.removeprefix(" must be ").strip() for other in others)])


def _is_kind(part: int | str) -> bool:
    """What pydantic puts into a place to tell the branches of a union apart: no part of what was given."""
    return isinstance(part, str) and ("[" in part or part in ("str", "int", "float", "bool"))


_PLAIN_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "dict": "a mapping",
    "model": "a mapping",
    "none": "null",
}


def _demand(type_: str, words: str) -> str:
    """What pydantic asks for, in plain words where they are frequent."""
    kind, _, fault = type_.partition("_")
    if kind in _PLAIN_KINDS and fault in ("type", "parsing", "from_float", "required", "attributes_type"):
        return f"must be {_PLAIN_KINDS[kind]}"
    if words.startswith("Input should "):
        return words.replace("Input should", "must", 1)
    if words == "String should have at least 1 character":
        return "must have something in it"
    return "is wrong: " + words.removeprefix("Value error, ").removeprefix("Assertion failed, ")


def _short(value: object) -> str:
    return shorten(repr(value), 60)
