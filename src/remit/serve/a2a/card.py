"""The card: what this server is and what can be asked of it, for strangers and for those that were let in.

A stranger on this machine sees the skills; one from elsewhere sees only how to come in, for the names of a project's agents say what it
works on. Whoever is let in asks for the extended card, and sees those that it may use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
    HTTPAuthSecurityScheme,
    MutualTlsSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)

from remit.core.agents import AgentSpec
from remit.proto.extension import EXTENSION
from remit.proto.values import struct_of, text_of
from remit.serve.a2a.messages import MODES
from remit.tool.catalogue import parts_of, signature

JSON_RPC, REST, GRPC = "JSONRPC", "HTTP+JSON", "GRPC"
PROTOCOL = "1.0"
DELEGATE = "delegate"
"""The one skill that a stranger from elsewhere is told of."""
_WORDS = "Hands work to agents and always gives an answer back: in time, in one checked shape, with whatever was done."
_LONGEST_DESCRIPTION = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the card says beside the skills."""

    interfaces: Sequence[tuple[str, str]]
    """Bindings and where they answer, the best first."""
    takes_certificates: bool = False
    shows_skills: bool = True
    """To strangers."""


def public_card(facts: Facts, specs: Sequence[AgentSpec]) -> AgentCard:
    return _card(facts, [skill_of(spec) for spec in specs] if facts.shows_skills and specs else [_any_skill()])


def extended_card(facts: Facts, specs: Sequence[AgentSpec]) -> AgentCard:
    return _card(facts, [skill_of(spec) for spec in specs] or [_any_skill()])


def skill_of(spec: AgentSpec) -> AgentSkill:
    target, operation = parts_of(spec.name)
    takes_words = "task" in spec.parameters_schema.get("properties", {})
    words = " ".join(part for part in (spec.description.strip(), f"Takes {signature(spec)}.") if part)
    return AgentSkill(
        id=spec.name,
        name=spec.name if operation is None else operation.replace("_", " "),
        description=text_of(words)[:_LONGEST_DESCRIPTION],
        tags=[target, spec.kind, *spec.languages],
        input_modes=MODES if takes_words else MODES[1:],
        output_modes=MODES,
    )


def _any_skill() -> AgentSkill:
    words = f"{_WORDS} The extended card, for those that are let in, has a skill for each agent."
    return AgentSkill(id=DELEGATE, name="delegate work", description=words, tags=["delegation"], input_modes=MODES, output_modes=MODES)


def _card(facts: Facts, skills: list[AgentSkill]) -> AgentCard:
    schemes = _schemes(facts)
    return AgentCard(
        name="remit",
        description=_WORDS,
        version=_version(),
        provider=AgentProvider(organization="remit", url="https://remit.dev"),
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding=binding, protocol_version=PROTOCOL) for binding, url in facts.interfaces
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=True, extended_agent_card=True, extensions=[_extension()]),
        security_schemes=schemes,
        security_requirements=[SecurityRequirement(schemes={name: StringList()}) for name in schemes],
        default_input_modes=MODES,
        default_output_modes=MODES,
        skills=skills,
    )


def _schemes(facts: Facts) -> Mapping[str, SecurityScheme]:
    bearer = HTTPAuthSecurityScheme(scheme="bearer", description="A token made by `remit token new`.")
    schemes = {"bearer": SecurityScheme(http_auth_security_scheme=bearer)}
    if facts.takes_certificates:
        mutual = MutualTlsSecurityScheme(description="A certificate signed by the authority that this server trusts.")
        schemes["mtls"] = SecurityScheme(mtls_security_scheme=mutual)
    return schemes


def _extension() -> AgentExtension:
    return AgentExtension(
        uri=EXTENSION,
        description="Depth, path and remaining time of the caller's delegation, so that limits hold across remits. "
        "Time is honoured from everybody, depth and path from those that were granted `relay`.",
        params=struct_of({"metadata": {"depth": "integer", "path": "list of names", "timeLeftMs": "number"}}),
    )


def _version() -> str:
    try:
        return version("remit")
    except PackageNotFoundError:  # run from its sources
        return "0"
