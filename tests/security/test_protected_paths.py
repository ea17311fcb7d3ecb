"""Without the user's approval, agents cannot change files that configure remit, start programs, or belong to the board or to git."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit import Context, Decision, PolicyRequest, Remit, Return, agent, ask
from remit.core.protected_paths import Protection, protection_of
from remit.testing import Call, Reply, Say, ScriptedModels, valid_return
from support.server import Call as ServiceCall
from support.server import Grants, Principal, Service

PLAN = "specs/001_first/plans/implementation-001.md"
SETTINGS = '[tool.remit.agents.x]\ncommand = ["sh", "-c", "id"]\n'
FORBIDDEN = {
    "remit.toml": SETTINGS,
    "pyproject.toml": f"[project]\nname = 'x'\n{SETTINGS}",
    ".remit/agents/evil.py": "import os",
    ".remit/policy.cedar": "permit (principal, action, resource);",
    ".git/hooks/pre-commit": "#!/bin/sh",
    ".git/config": "[core]\nfsmonitor = id",
    "specs/state.json": "{}",
    "specs/TODO.md": "# TODO",
    "specs/archive/state.json": "{}",
    PLAN: "### Phase 1: x [NOT STARTED]\n- **Accept**: `id`",
    ".env": "A=1",
}
ASKED = (
    ".claude/settings.json", ".claude/settings.local.json", ".claude/hooks/x.sh", ".claude/agents/x.md", ".claude/commands/x.md",
    ".claude/plugins/x/plugin.json", ".claude/skills/x/SKILL.md", ".mcp.json", ".codex/config.toml", ".opencode/plugin/x.ts",
    "opencode.json", "opencode.jsonc", ".cursor/mcp.json", ".vscode/tasks.json", ".vscode/settings.json", ".vscode/launch.json",
    ".idea/runConfigurations/x.xml", ".envrc", "mise.toml", ".mise.toml", ".mise.local.toml", ".tool-versions", ".githooks/pre-push",
    ".husky/pre-commit", ".pre-commit-config.yaml", ".github/workflows/ci.yml", ".gitlab-ci.yml", ".devcontainer/devcontainer.json",
    ".devcontainer.json", ".gitattributes", ".gitmodules", "docs/HEAD", ".cargo/config.toml", "Jenkinsfile",
    ".venv/lib/python3.12/site-packages/x.pth", "env/lib/python3.12/site-packages/x.py", "env/bin/python3", "env/pyvenv.cfg",
    ".bashrc", ".profile", ".gitconfig", ".config/systemd/user/x.service", ".local/bin/ls",
    "scripts/hooks/pre-commit", "src/sitecustomize.py", "node_modules/.bin/eslint",
)  # fmt: skip
ORDINARY = (
    "src/x.py", "README.md", ".claude/notes.md", ".github/CODEOWNERS", ".vscode/notes.txt", "specs/001_first/reports/research-001.md",
    "docs/specs/TODO.md", "plans/x.md", "promise.toml", "mises.py", ".env.example", "tests/remit_toml.py",
)  # fmt: skip


def spellings(path: str) -> list[str]:
    first, _, rest = path.partition("/")
    parent, _, name = path.rpartition("/")
    dotted = f"{parent}/{name}." if parent else f"{name}."
    return [
        path, f"./{path}", f"src/../{path}", path.replace("/", "//"), path.upper(), path.title(), dotted,
        f"{first} /{rest}" if rest else f"{path} ", f"linked/{path}",
        path.replace("s", "\u017f").replace("k", "\u212a"), path[0] + "\u200d" + path[1:],
    ]  # fmt: skip


def project(root: Path) -> Callable[[], dict[str, str]]:
    """Create a project with every protected file; returns its content by path."""
    (root / "src").mkdir()
    (root / "linked").symlink_to(".")
    for path in (*FORBIDDEN, *ASKED):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("[project]\nname = 'y'\n" if path == "pyproject.toml" else "before")
    (root / "remit.toml").write_text("")
    (root / ".remit/policy.cedar").unlink()
    (root / ".remit/agents/evil.py").unlink()
    (root / "mail").symlink_to(".claude")
    return lambda: contents(root)


def contents(root: Path) -> dict[str, str]:
    found = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in ("__pycache__",)]
        for name in files:
            path = os.path.relpath(os.path.join(folder, name), root)
            is_ours = path.startswith(".remit/") and not path.startswith((".remit/agents", ".remit/policy"))
            if (not is_ours and protection_of(path) is not None) or path == "pyproject.toml":
                found[path] = hashlib.sha256(Path(folder, name).read_bytes()).hexdigest()
    return found


def writes() -> list[dict[str, Any]]:
    attacks = [(spelt, FORBIDDEN.get(path, "after")) for path in (*FORBIDDEN, *ASKED) for spelt in spellings(path)]
    attacks += [("mail/settings.json", "after"), ("src/../pyproject.toml", FORBIDDEN["pyproject.toml"])]
    return [{"path": path, "content": content, "create_parents": True} for path, content in attacks]


@agent("intruder")
async def intruder(ctx: Context, attempts: list[dict[str, Any]]) -> list[str]:
    """Represents any agent that may use `worker.write_file`; returns the paths that it could write."""
    return [one["path"] for one in attempts if (await ctx.delegate("worker.write_file", parameters=one)).ok]


async def test_agent_with_write_file_cannot_change_protected_files_in_any_spelling(tmp_path: Path) -> None:
    look = project(tmp_path)
    before = look()
    attempts, written = writes(), list[str]()
    async with Remit.open(tmp_path, agents=[intruder]) as remit:
        for start in range(0, len(attempts), 200):
            written += (await remit.delegate("intruder", parameters={"attempts": attempts[start : start + 200]})).data
        ordinary = await remit.delegate(
            "intruder", parameters={"attempts": [{"path": path, "content": "x", "create_parents": True} for path in ORDINARY]}
        )
    assert look() == before
    assert written == []
    assert ordinary.data == list(ORDINARY)


@pytest.mark.parametrize("is_assistant", [False, True])
async def test_model_with_write_file_cannot_change_protected_files(tmp_path: Path, is_assistant: bool) -> None:
    look = project(tmp_path)
    before = look()
    paths = [*FORBIDDEN, *ASKED[:20], "pyProject.toml", ".CLAUDE/Settings.json", "Remit.TOML", "notes.md"]
    calls = [
        Call("delegate", target="worker", operation="write_file", parameters={"path": path, "content": FORBIDDEN.get(path, SETTINGS)})
        for path in paths
    ]
    async with ScriptedModels([calls, Say("Done.") if is_assistant else Reply(lambda request: Say(valid_return(request)))]) as server:
        address = {"kind": "openai", "url": server.openai_url, "model": "scripted"}
        thinker = {"kind": "model", "description": "Thinks.", "tools": ["worker.write_file"], "timeout": 60}
        settings = {"model": "scripted", "models": {"scripted": address}, "agents": {"thinker": thinker}}
        async with Remit.open(tmp_path, settings=settings) as remit:
            done = await ask(remit, "Write.") if is_assistant else await remit.delegate("thinker", task="Write.")
    assert done.ok, done
    assert (tmp_path / "notes.md").read_text() == SETTINGS
    assert look() == before


async def test_token_for_write_file_cannot_change_protected_files(tmp_path: Path) -> None:
    look = project(tmp_path)
    before = look()
    ci = ServiceCall(principal=Principal(name="token:ci", grants=Grants(agents=("worker.write_file",))), api="http")
    async with Remit.open(tmp_path) as remit:
        service = Service(remit)

        async def write(path: str, content: str) -> Return:
            asked = {"target": "worker", "operation": "write_file", "parameters": {"path": path, "content": content}}
            return await (await service.begin(ci, asked)).result()

        for path in (*FORBIDDEN, *ASKED):
            done = await write(path, FORBIDDEN.get(path, "after"))
            assert [error.code for error in done.errors] == ["POLICY_DENIED"], path
        assert (await write("src/x.py", "x")).ok
    assert look() == before


async def test_deleting_a_protected_file_is_refused(tmp_path: Path) -> None:
    look = project(tmp_path)
    (tmp_path / "pyproject.toml").write_text(SETTINGS)
    before = look()

    @agent("remover")
    async def remover(ctx: Context, paths: list[str]) -> list[str]:
        both = [{"path": path, "recursive": recursive} for path in paths for recursive in (False, True)]
        return [one["path"] for one in both if (await ctx.delegate("worker.delete_file", parameters=one)).ok]

    async with Remit.open(tmp_path, agents=[remover]) as remit:
        done = await remit.delegate("remover", paths=[*FORBIDDEN, *ASKED, "specs", ".claude", ".github", ".vscode", "linked/.claude"])
    assert done.data == []
    assert look() == before


class Person:
    """Answers approval requests and records them."""

    def __init__(self, answer: bool) -> None:
        self.answer, self.questions = answer, list[str]()

    async def approve(self, asked: PolicyRequest, decision: Decision, seconds: float) -> tuple[bool, str]:
        self.questions.append(decision.question)
        return self.answer, "alice"


@pytest.mark.parametrize("answer", [True, False])
async def test_changing_files_that_start_programs_needs_approval(tmp_path: Path, answer: bool) -> None:
    person = Person(answer)
    async with Remit.open(tmp_path, agents=[intruder], approver=person) as remit:
        attempts = [{"path": path, "content": "x", "create_parents": True} for path in (".mcp.json", "src/x.py", "remit.toml")]
        done = await remit.delegate("intruder", parameters={"attempts": attempts})
    assert done.data == ([".mcp.json", "src/x.py"] if answer else ["src/x.py"])
    assert person.questions == ["intruder wants to change .mcp.json, by which other tools start programs."]


async def test_pyproject_is_protected_only_when_its_remit_table_changes(tmp_path: Path) -> None:
    own = "[tool.remit]\nmax_depth = 2\n"
    (tmp_path / "pyproject.toml").write_text(f"[project]\nname = 'x'\n{own}")
    (tmp_path / "settings.toml").symlink_to("pyproject.toml")
    attempts = {
        "pyproject.toml": f"[project]\nname = 'y'\n{own}[tool.ruff]\nline-length = 100\n",
        "./pyproject.toml": "[project]\nname = 'y'\n",
        "settings.toml": f"{own}[tool.remit.agents.x]\ncommand = ['id']\n",
        "PyProject.toml": SETTINGS,
        "sub/pyproject.toml": "[tool.'remit'.agents.x]\ncommand = ['id']\n",
        "other/pyproject.toml": "[project]\nname = 'z'\n",
        "broken/pyproject.toml": "[tool.remit",
    }
    async with Remit.open(tmp_path, agents=[intruder]) as remit:
        listed = [{"path": path, "content": text, "create_parents": True} for path, text in attempts.items()]
        done = await remit.delegate("intruder", parameters={"attempts": listed})
    assert done.data == ["pyproject.toml", "other/pyproject.toml"]
    assert (tmp_path / "pyproject.toml").read_text() == attempts["pyproject.toml"]


async def test_writing_to_a_hard_link_leaves_the_protected_file_unchanged(tmp_path: Path) -> None:
    (tmp_path / "remit.toml").write_text("")
    os.link(tmp_path / "remit.toml", tmp_path / "notes.txt")
    async with Remit.open(tmp_path) as remit:
        assert (await remit.delegate("worker.write_file", path="notes.txt", content=SETTINGS)).ok
    assert (tmp_path / "remit.toml").read_text() == ""


async def test_path_that_starts_with_a_tilde_is_refused(tmp_path: Path) -> None:
    async with Remit.open(tmp_path) as remit:
        for path in ("~/x", "~", "./~root/x", "~x"):
            done = await remit.delegate("worker.write_file", path=path, content="x", create_parents=True)
            assert "begins with ~" in done.errors[0].message
    assert [path.name for path in os.scandir(tmp_path)] == [".remit"]


KEY_FILES = (
    "service-account.json", "keys/service_account.json", "serviceAccountKey.json", "prod-service-account.json", "service-account-prod.json",
    "app-firebase-adminsdk-x1y2.json", "application_default_credentials.json", "client_secret_123.apps.googleusercontent.com.json",
    "AuthKey_ABC123.p8", "kubeconfig", "prod.kubeconfig", ".config/gcloud/x.db", ".config/gh/hosts.yml", ".vault-token", ".authinfo",
    ".dockercfg", ".s3cfg", ".boto", ".my.cnf", ".cargo/credentials.toml",
)  # fmt: skip


def test_well_known_key_files_are_secret() -> None:
    assert [path for path in KEY_FILES if protection_of(path) is not Protection.SECRET] == []
    ordinary = (
        "service-account.yaml",
        "service-account.ts",
        "service-account.schema.json",
        "accounts.json",
        "client.json",
        "docs/kubeconfig.md",
    )
    assert [path for path in ordinary if protection_of(path) is not None] == []


def test_every_spelling_of_a_protected_path_is_protected() -> None:
    for path in (*FORBIDDEN, *ASKED):
        if path != "pyproject.toml":
            missed = [spelt for spelt in spellings(path) if protection_of(os.path.normpath(spelt)) is None]
            expected = [f"linked/{path}"] if path.startswith("specs/") else []
            assert missed == expected, json.dumps(missed)
    assert [path for path in ORDINARY if protection_of(path) is not None] == []
    assert protection_of(". " * 2000 + "x") is protection_of("a/" * 2000 + "x") is None
    assert protection_of(".claude", is_link=True) is Protection.TOOLS
    assert protection_of("specs/001_first", is_link=True) is not None
