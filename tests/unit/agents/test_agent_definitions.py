"""Agent files: profiles that a configured agent executes, language models with their tools, and errors of invalid files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remit import AgentDefinition, Settings, load_settings
from remit.agents.declarations import all_joined, declarations_of
from remit.agents.definition import Kind
from remit.agents.directory import Directory
from remit.agents.model.model_agent import reachable
from remit.agents.model_agents import OPERATIONS, is_reached, reach_of
from remit.agents.profiles import narrow_tools
from remit.builtin import loader
from remit.builtin.compose import SPEC
from remit.core.agents import AgentSpec, WorkspaceKind
from remit.models.client import Models

PROJECT = 'model = "openai:gpt-5"\n'
OWN, CLAUDE, OPENCODE = ".remit/agents", ".claude/agents", ".opencode/agent"


def read(
    root: Path, head: str, *, toml: str = PROJECT, folder: str = OWN, body: str = "You are P."
) -> tuple[AgentDefinition | None, list[str]]:
    for other in (OWN, CLAUDE, OPENCODE):
        (root / other / "p.md").unlink(missing_ok=True)
    path = root / folder / "p.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: p\ndescription: Its own.\n{head}\n---\n{body}\n")
    (root / "remit.toml").write_text(toml)
    definitions, problems = all_joined(declarations_of(root, load_settings(root, environ={})))
    return next((one for one in definitions if one.name == "p"), None), problems


def good(root: Path, head: str, *, toml: str = PROJECT, folder: str = OWN) -> AgentDefinition:
    found, problems = read(root, head, toml=toml, folder=folder)
    assert problems == []
    assert found is not None
    return found


def test_operations_of_the_built_in_agents_are_listed_with_described_parameters() -> None:
    models = Models(Settings())
    agents = [one for target in ("worker", "researcher", "coder") for one in loader(target, Settings(), lambda: models)()]
    assert {one.spec.name for one in agents} | {SPEC.name} == set(OPERATIONS)
    parameters = {(one.spec.name, name): schema for one in agents for name, schema in one.spec.parameters_schema["properties"].items()}
    described = {key for key, schema in parameters.items() if any(kind.get("description") for kind in (schema, *schema.get("anyOf", ())))}
    assert parameters.keys() - described == set()


@pytest.mark.parametrize("folder", [OWN, CLAUDE, OPENCODE])
def test_model_of_the_project_executes_profiles_without_a_coding_agent(tmp_path: Path, folder: str) -> None:
    found = good(tmp_path, "model: sonnet", folder=folder)
    assert (found.kind, found.models, found.runs_on) == (Kind.MODEL, (), "model")
    assert good(tmp_path, "", folder=folder, toml=f'{PROJECT}[agents.claude]\nkind = "claude"\n').kind is Kind.CLAUDE
    assert good(tmp_path, "", folder=folder, toml="").kind is Kind.PROFILE


@pytest.mark.parametrize(
    ("toml", "kind", "models"),
    [
        ('profiles_on = "model"\n', Kind.MODEL, ()),
        ('profiles_on = "anthropic:claude-x"\n', Kind.MODEL, ("anthropic:claude-x",)),
        ('[roles]\np = "model"\n', Kind.MODEL, ()),
        ('[roles]\np = "anthropic:claude-x"\n', Kind.MODEL, ("anthropic:claude-x",)),
        ('[roles]\np = "cheap"\n[models.cheap]\nurl = "http://127.0.0.1:1/v1"\n', Kind.MODEL, ("cheap",)),
        ('[roles]\np = "claude"\n', Kind.CLAUDE, ()),
    ],
)
def test_named_executor_takes_precedence(tmp_path: Path, toml: str, kind: Kind, models: tuple[str, ...]) -> None:
    found = good(tmp_path, "", toml=f'{PROJECT}{toml}[agents.claude]\nkind = "claude"\n')
    assert (found.kind, found.models) == (kind, models)


def test_profile_on_a_model_agent_inherits_its_model_and_at_most_its_tools(tmp_path: Path) -> None:
    executor = 'model = "ollama:small"\ntools = ["worker"]\ninstructions = "Be brief."\nrequests = 3\ntimeout = 9\neffects = ["network"]\n'
    toml = f'profiles_on = "cheap"\n[agents.cheap]\nkind = "model"\n{executor}'
    found = good(tmp_path, "tools: Read, Bash", toml=toml, folder=CLAUDE)
    may_reach = reachable(found, Directory(lambda agent: agent))
    assert [may_reach(AgentSpec(name=name)) for name in ("worker.read_file", "coder.execute_code")] == [True, False]
    assert (found.kind, found.models, found.tools, found.runs_on) == (
        Kind.MODEL,
        ("ollama:small",),
        ("worker.read_file", "coder.execute_code"),
        "cheap",
    )
    assert found.within == ("worker",), "its tools are within those of its executor when it runs"
    assert (found.instructions, found.requests, found.spec.timeout_seconds) == ("Be brief.\n\nYou are P.", 3, 9)
    assert found.spec.effects == ("network",), "rules for its effects hold"


@pytest.mark.parametrize(
    ("tools", "reached"),
    [
        ("Read, Grep", ["worker.read_file", "worker.search_files"]),
        ("[Read, Glob, LS]", ["worker.read_file", "worker.list_files"]),
        ("Write", ["worker.write_file", "worker.read_file"]),
        ("Edit, MultiEdit", ["worker.write_file", "worker.read_file"]),
        ("WebFetch, WebSearch", ["worker.web_fetch", "worker.web_search"]),
        ("Bash", ["coder.execute_code"]),
        ("worker, coder.review_code", ["worker", "coder.review_code"]),
        ("worker.read_*", ["worker.read_file"]),
        ("Task(helper, other)", ["helper", "other"]),
        ("[]", []),
        ("TodoWrite, mcp__github__issues", []),
        ("Bash(git *), Read(src/**)", []),
    ],
)
def test_tools_are_agents_operations_or_names_of_vendors(tmp_path: Path, tools: str, reached: list[str]) -> None:
    assert list(good(tmp_path, f"tools: {tools}\nremit:\n  kind: model").tools or ()) == reached


def test_denied_tool_is_not_reachable_indirectly(tmp_path: Path) -> None:
    found = good(tmp_path, "disallowedTools: Write, Bash(rm *), WebFetch\nremit:\n  kind: model")
    denied_tools = {"worker.write_file", "worker.delete_file", "coder.generate_code", "coder.execute_code", "worker.web_fetch"}
    denied_tools |= {"researcher.deep_research", "researcher.synthesize_sources"}
    assert {SPEC.name if one == "compose" else one for one in found.tools or ()} == set(OPERATIONS) - denied_tools
    denied = good(tmp_path, 'permission:\n  edit: deny\n  bash: {"*": deny}\n', folder=OPENCODE)
    assert not {"worker.write_file", "coder.execute_code"} & set(denied.tools or ())
    assert is_reached("worker.read_file", denied.tools)
    assert good(tmp_path, "permission: deny", folder=OPENCODE).tools == ()


@pytest.mark.parametrize("name", ["deployer", "Task(deployer)", "researcher", "assistant"])
def test_file_of_another_tool_reaches_only_built_in_operations(name: str) -> None:
    assert set(reach_of([name, "Read"], is_guest=True) or ()) <= set(OPERATIONS)
    assert reach_of(None, is_guest=True) == OPERATIONS


def test_file_of_another_tool_adds_no_provider_and_no_requests(tmp_path: Path) -> None:
    """A file from a clone uses no key that the project does not use already."""
    found = good(tmp_path, "model: anthropic/claude-x\nsteps: 9000", folder=OPENCODE)
    assert (found.models, found.requests) == ((), 50)
    assert good(tmp_path, "model: openai/gpt-9\nmaxTurns: 5", folder=CLAUDE).models == ("openai:gpt-9",)


def test_turns_and_temperature_of_vendor_files_are_used(tmp_path: Path) -> None:
    found = good(tmp_path, "temperature: 0.2\nmode: subagent\nsteps: 4", folder=OPENCODE)
    assert (found.requests, found.temperature) == (4, 0.2)
    found_none, problems = read(tmp_path, "temperature: hot", folder=OPENCODE)
    assert found_none is None
    assert "p.md: temperature: " in problems[0]


@pytest.mark.parametrize(
    ("head", "fault"),
    [
        ("model: nobody:x\nremit:\n  kind: model", "model: 'nobody:x' names no model"),
        ("model: [1]\nremit:\n  kind: model", "model.0: "),
        (
            "tools: worker.red_file\nremit:\n  kind: model",
            "tools: worker has no operation 'worker.red_file' (did you mean worker.read_file",
        ),
        ("tools: {a: b}\nremit:\n  kind: model", "tools must be names"),
        ("tools: worker\ndisallowedTools: worker.writefile\nremit: {kind: model}", "disallowedTools: worker has no operation"),
        ("tools: helper\ndisallowedTools: helper.two\nremit: {kind: model}", "disallowedTools: 'helper.two' is one operation of helper"),
        ("remit:\n  kind: model\n  allow: [read]", "allow: an agent of this kind (model) has no use for it"),
        ("remit:\n  kind: model\n  requests: 0", "requests: "),
        ("remit:\n  kind: model\n  output_schema: 3", "output_schema: "),
        ("remit:\n  kind: model\n  output_schema: {type: strng}", "output_schema"),
        ("remit:\n  kind: model\n  output_schema: form.json", "output_schema: write the schema itself"),
        ("remit:\n  kind: modle", "kind: "),
        ("remit:\n  kind: model\n  requsts: 3", "requsts: there is no such key (did you mean requests?)"),
        ("languages: [rust]", "languages belongs under remit:"),
    ],
)
def test_invalid_file_is_reported_with_its_path(tmp_path: Path, head: str, fault: str) -> None:
    found, problems = read(tmp_path, head)
    assert found is None
    (problem,) = problems
    assert problem.startswith(f"{tmp_path}/.remit/agents/p.md: {fault}")


def test_output_schema_of_a_file_is_plain_json(tmp_path: Path) -> None:
    inline = good(tmp_path, "remit:\n  kind: model\n  output_schema: {required: [n], properties: {day: {const: 2026-01-02}}}")
    assert inline.spec.output_schema == {"required": ["n"], "properties": {"day": {"const": "2026-01-02"}}}, "plain JSON"


@pytest.mark.parametrize(
    ("tools", "denied", "left"),
    [
        ("worker", '"*"', ()),
        ("worker, helper", '["*"]', ()),
        ("worker.write_file, worker.read_file", "WORKER.write_file", ("worker.read_file",)),
        ("worker.read_file, coder.execute_code", "CODER", ("worker.read_file",)),
        ("helper, helpful, worker.read_file", "help*", ("worker.read_file",)),
        ("helper, worker.read_file", "helper", ("worker.read_file",)),
        ("helper.one, helper.two", "helper.two", ("helper.one",)),
    ],
)
def test_deny_takes_precedence_over_allow_in_any_spelling(tmp_path: Path, tools: str, denied: str, left: tuple[str, ...]) -> None:
    assert good(tmp_path, f"tools: {tools}\ndisallowedTools: {denied}\nremit: {{kind: model}}").tools == left


def test_file_of_another_tool_cannot_choose_a_command_or_another_model(tmp_path: Path) -> None:
    toml = PROJECT + '[agents.sh]\ncommand = "cat"\n[agents.cheap]\nkind = "model"\nmodel = "ollama:small"\nrequests = 3\n'
    found, problems = read(tmp_path, "remit: {runs_on: sh}", toml=toml, folder=CLAUDE)
    assert found is None
    assert "p.md: runs_on: sh is of the kind command" in problems[0]
    assert good(tmp_path, "remit: {runs_on: sh}", toml=toml).kind is Kind.COMMAND
    found = good(tmp_path, 'remit: {runs_on: "ollama:big"}', toml=toml, folder=CLAUDE)
    assert (found.models, found.runs_on) == ((), "model")
    assert good(tmp_path, 'remit: {runs_on: "openai:gpt-5-mini"}', toml=toml, folder=CLAUDE).models == ("openai:gpt-5-mini",)
    found = good(tmp_path, "remit: {runs_on: cheap, requests: 40}", toml=toml, folder=CLAUDE)
    assert (found.models, found.requests) == (("ollama:small",), 3)


# ---- profiles of a configured agent

BASE = """
[agents.claude]
kind = "claude"
timeout = 60
workspace = "worktree"
merge = true
allow = ["Read", "Edit", "Bash(git *)"]
model = "opus"
options = ["--fast"]
"""
OTHERS = """
[agents.codex]
kind = "codex"
model = "gpt-5"
[agents.opencode]
kind = "opencode"
model = "local/small"
[agents.sh]
command = "cat"
"""


def profile(root: Path, head: str, *, toml: str = BASE, folder: str = CLAUDE) -> AgentDefinition:
    return good(root, head, toml=toml, folder=folder)


def test_profile_inherits_from_its_executor(tmp_path: Path) -> None:
    found = profile(tmp_path, "model: haiku")
    assert (found.kind, found.runs_on, found.model, found.options) == (Kind.CLAUDE, "claude", "haiku", ("--fast",))
    assert (found.instructions, found.spec.description, found.spec.kind) == ("You are P.", "Its own.", "claude")
    assert (found.spec.timeout_seconds, found.spec.workspace, found.spec.merge) == (60, WorkspaceKind.WORKTREE, True)
    assert found.spec.source == str(tmp_path / ".claude/agents/p.md")


def test_own_values_of_a_profile_take_precedence(tmp_path: Path) -> None:
    found = profile(tmp_path, "remit:\n  timeout: 5\n  workspace: scratch\n  delegates: true", folder=".remit/agents")
    assert (found.spec.timeout_seconds, found.spec.workspace, found.spec.merge, found.delegates) == (5, WorkspaceKind.SCRATCH, False, True)


def test_file_then_settings_name_the_executor(tmp_path: Path) -> None:
    toml = 'profiles_on = "sh"\n' + BASE + OTHERS
    found = profile(tmp_path, "", toml=toml)
    assert (found.runs_on, found.kind, found.command) == ("sh", Kind.COMMAND, ("cat",))
    assert profile(tmp_path, "remit: {runs_on: opencode}", toml=toml).kind is Kind.OPENCODE


MODELS_OF_EXECUTORS = [
    ("claude", "sonnet", "sonnet"),
    ("claude", "claude-opus-4-1", "claude-opus-4-1"),
    ("claude", "anthropic/claude-opus-4-1", "claude-opus-4-1"),
    ("claude", "inherit", "opus"),
    ("claude", "openai/gpt-5", "opus"),
    ("codex", "openai/gpt-6", "gpt-6"),
    ("codex", "o9", "o9"),
    ("codex", "sonnet", "gpt-5"),
    ("opencode", "openai/gpt-6", "openai/gpt-6"),
    ("opencode", "sonnet", "local/small"),
    ("sh", "sonnet", None),
]


@pytest.mark.parametrize(("executor", "model", "used"), MODELS_OF_EXECUTORS)
def test_model_of_a_file_is_used_where_its_executor_has_it(tmp_path: Path, executor: str, model: str, used: str | None) -> None:
    assert profile(tmp_path, f"model: {model}", toml=f'profiles_on = "{executor}"\n{BASE}{OTHERS}').model == used


def test_tools_of_a_file_only_narrow_those_of_the_executor(tmp_path: Path) -> None:
    assert profile(tmp_path, "tools: Read, Bash, WebFetch").allow == ("Read", "Bash(git *)")
    assert profile(tmp_path, "disallowedTools: Bash").allow == ("Read", "Edit")
    assert profile(tmp_path, "tools: []").allow == ()
    denied = "permission:\n  edit: deny\n  bash:\n    'git push*': deny"
    assert profile(tmp_path, denied, folder=".opencode/agent").allow == ("Read",)


WIDER = [
    "command: [sh, -c, id]",
    "kind: claude",
    "options: [--dangerously-skip-permissions]",
    "environment: {LD_PRELOAD: ./x.so}",
    "pass_environment: ['*']",
    "allow: ['*']",
    "delegates: true",
    "merge: true",
    "workspace: shared",
    "effects: [read]",
    "retries: 100",
    "group: [claude]",
]


@pytest.mark.parametrize("folder", [".claude/agents", ".opencode/agents"])
@pytest.mark.parametrize("said", WIDER)
def test_file_from_a_clone_cannot_widen_its_permissions(tmp_path: Path, folder: str, said: str) -> None:
    path = tmp_path / folder / "p.md"
    path.parent.mkdir(parents=True)
    path.write_text(f"---\nname: p\ndescription: Its own.\nremit:\n  {said}\n---\n")
    (tmp_path / "remit.toml").write_text(BASE)
    definitions, problems = all_joined(declarations_of(tmp_path, load_settings(tmp_path, environ={})))
    assert [one.name for one in definitions] == ["claude"]
    assert len(problems) == 1
    assert f"{said.partition(':')[0]} would give it more than its executor has" in problems[0]


def test_own_file_may_set_allow(tmp_path: Path) -> None:
    assert profile(tmp_path, "remit: {allow: [WebFetch]}", folder=".remit/agents").allow == ("WebFetch",)


names = st.text("ABCabc_*()[]", max_size=6)


@given(allow=st.lists(names), tools=st.none() | st.lists(names), without=st.lists(names))
def test_denied_tool_is_never_left_for_any_spelling(allow: list[str], tools: list[str] | None, without: list[str]) -> None:
    assert not set(narrow_tools(allow, tools, without)) & {one for one in without if one.isalpha()}
    assert narrow_tools(allow, [], without) == ()
