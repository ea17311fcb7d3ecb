"""Protected paths: files that configure remit or start programs, the board, git's own files, and files with secrets.

The only list of them. The policy decides on access (fact `protected`, see `policy/default.cedar`). Paths are compared as the most lenient
file system would: ignoring case, Unicode form, invisible characters, and trailing dots or spaces."""

import re
import unicodedata
from enum import StrEnum
from functools import cache


class Protection(StrEnum):
    """Why a path is protected: the first reason that applies."""

    SECRET = "secret"
    """Contains passwords or keys."""
    GIT = "git"
    """Belongs to git: objects, configuration, hooks."""
    SCRATCH = "scratch"
    """The folder of one delegation below `.remit/scratch`."""
    RECORD = "record"
    """In `.remit`: remit's record, agents, rules; and the user's approvals, if the home folder is the project."""
    SETTINGS = "settings"
    """Settings of remit."""
    BOARD = "board"
    """Written by the board only."""
    TOOLS = "tools"
    """Another tool starts programs from it."""


PYPROJECT = "pyproject.toml"
"""Protected only if its table `[tool.remit]` changes: `remit_table`."""

_ANYWHERE = {
    Protection.SECRET: r"""
        (?: \.env | \.env\.[^/]+ | [^/]*\.env | \.netrc | \.pgpass | \.npmrc | \.pypirc | \.git-credentials | \.htpasswd
          | credentials(?:\.json|\.toml)? | secrets\.(?:y[^/]*ml|json|toml)
          | [^/]*service[-_]?account(?:[-_]?keys?)?(?:[-_][^/.]*)?\.json | [^/]*firebase[-_]?adminsdk[^/]*\.json
          | application_default_credentials\.json | client_secrets?(?:_[^/]*)?\.json
          | [^/]*\.(?:pem|key|p8|p12|pfx|jks|keystore|kdbx|ppk|kubeconfig) | kubeconfig
          | \.authinfo(?:\.gpg)? | \.vault-token | \.dockercfg | \.s3cfg | \.boto | \.my\.cnf
          | id_(?:rsa|dsa|ecdsa|ed25519)[^/]* )
        | \.(?:ssh|aws|gnupg|kube|docker|azure) (?:/.*)? | \.config/(?:gcloud(?:/.*)?|gh/hosts\.yml)
        """,
    Protection.GIT: r"(?: \.git | git~1 ) (?:/.*)?",
    Protection.RECORD: r"(?: \.remit | \.local/state/remit ) (?:/.*)?",
    Protection.SETTINGS: r"remit\.toml",
    Protection.TOOLS: r"""
        \.claude/settings[^/]*\.json | \.claude/(?:hooks|agents|commands|plugins|skills)(?:/.*)? | \.mcp\.json
        | \.(?:codex|opencode|cursor|gemini)(?:/.*)? | opencode\.jsonc?
        | \.vscode/(?:tasks|settings|launch|mcp|extensions)\.json | \.idea(?:/.*)? | [^/]*\.code-workspace
        | \.zed/(?:tasks|settings|debug)\.json | \.cargo/config(?:\.toml)? | \.yarnrc(?:\.yml)? | \.pnpmfile\.c?js
        | \.envrc | \.?mise(?:\.[^/]+)?\.toml | \.?mise/.* | \.config/mise(?:/.*|[^/]*\.toml)? | \.tool-versions
        | \.(?:githooks|husky)(?:/.*)? | \.pre-commit-config\.ya?ml | \.?lefthook[^/]*\.(?:ya?ml|toml|json)
        | \.(?:github|gitea|forgejo)/(?:workflows|actions)(?:/.*)? | \.gitlab-ci\.ya?ml | \.(?:circleci|buildkite|woodpecker)(?:/.*)?
        | (?:azure|bitbucket)-pipelines\.ya?ml | \.travis\.ya?ml | \.woodpecker\.ya?ml | jenkinsfile
        | bunfig\.toml | \.volta(?:/.*)? | \.prototools | \.direnv(?:/.*)? | \.envrc\.[^/]+ | \.autoenv[^/]*
        | \.(?:exrc|n?vimrc|lvimrc|nvim\.lua|rprofile|bazelrc|gdbinit|lldbinit|pdbrc|irbrc|pryrc|iex\.exs|ghci|ocamlinit|lfsconfig)
        | \.(?:bashrc|bash_(?:profile|login|logout|aliases)|profile|zshrc|zshenv|zprofile|zlogin|zlogout|vimrc|emacs|tmux\.conf|gitconfig)
        | \.(?:xinitrc|xprofile|xsession) | \.config/(?:fish|git|autostart|systemd|environment\.d|nvim)(?:/.*)? | \.local/bin(?:/.*)?
        | \.dir-locals[^/]*\.el | \.yarn/(?:releases|plugins)/.* | \.pnp\.[^/]*js | \.mvn(?:/.*)? | tools/bazel | \.overcommit\.ya?ml
        | \.(?:kiro|roo|qwen|windsurf|amazonq|continue|junie|factory|augment|pi|hg|jj|vs)(?:/.*)? | \.?crush\.json | \.aider\.conf\.ya?ml
        | \.github/hooks(?:/.*)? | reference-transaction | post-index-change | pre-auto-gc | fsmonitor-watchman | push-to-checkout
        | \.devcontainer(?:/.*)? | \.devcontainer\.json | \.gitattributes | \.gitmodules | head
        | \.?venv/.* | (?:site|dist)-packages/.* | pyvenv\.cfg | bin/(?:python|pip|activate|remit)[^/]*
        | (?:pre|post)-(?:commit|merge|merge-commit|checkout|push|rebase|rewrite|applypatch) | (?:prepare-)?commit-msg | applypatch-msg
        | (?:site|user)customize(?:\.py|/.*)? | node_modules/\.bin/.*
        """,
}
_BOARD = r"specs/(?: state\.json | todo\.md | archive/state\.json | (?:.*/)?plans(?:/.*)? )"
_HARMLESS = r"(?:.*/)?(?:\.env\.(?:example|sample|template)|[^/]*\.pub)"
_PARENTS = r"(?:.*/)?\.(?:claude|vscode|zed|cargo|github|gitea|forgejo|config|mise|local)|specs(?:/[^/]*)?"
"""Folders with some protected files: a link in their place would replace those files."""
_SCRATCH = ".remit/scratch/"
_OF_SESSIONS = (_SCRATCH, ".remit/work/")


@cache
def _patterns() -> dict[Protection, re.Pattern[str]]:
    """Compiled on first use: most commands of the board need none."""
    names = {kind: rf"(?:.*/)? (?:{names})" for kind, names in _ANYWHERE.items()}
    return {kind: re.compile(pattern, re.DOTALL | re.VERBOSE) for kind, pattern in {**names, Protection.BOARD: _BOARD}.items()}


def protection_of(path: str, *, is_link: bool = False) -> Protection | None:
    """Why `path`, relative to the project, is protected; None for an ordinary file. `is_link`: whether it is or becomes a link."""
    name = folded(path)
    if not name:  # the project folder itself
        return None
    patterns = _patterns()
    if patterns[Protection.SECRET].fullmatch(name) and not re.fullmatch(_HARMLESS, name, re.DOTALL):
        return Protection.SECRET
    if patterns[Protection.GIT].fullmatch(name):
        return Protection.GIT
    if path.startswith(_SCRATCH):
        return Protection.SCRATCH
    found = next((kind for kind, pattern in patterns.items() if kind is not Protection.SECRET and pattern.fullmatch(name)), None)
    return Protection.TOOLS if found is None and is_link and (is_pyproject(path) or re.fullmatch(_PARENTS, name, re.DOTALL)) else found


def folded(path: str) -> str:
    """One spelling for all names that a file system may treat as equal."""
    if not path.isascii():
        path = "".join(one for one in unicodedata.normalize("NFKC", path) if unicodedata.category(one) != "Cf")
        path = unicodedata.normalize("NFKC", path.casefold())
    return "/".join(part.rstrip(". ") for part in path.lower().split("/"))


def is_pyproject(path: str) -> bool:
    return folded(path).rpartition("/")[2] == PYPROJECT


def remit_table(content: bytes) -> object:
    """`[tool.remit]` of a pyproject.toml, for comparison with another version; an unreadable file equals no other."""
    import tomllib

    try:
        tools = tomllib.loads(content.decode("utf-8")).get("tool", {})
    except (ValueError, RecursionError):  # UnicodeDecodeError and TOMLDecodeError are ValueErrors
        return object()
    return tools.get("remit") if isinstance(tools, dict) else tools


def session_of(path: str) -> str:
    """The delegation whose scratch folder or workspace contains a path; empty: none."""
    return path.split("/", 3)[2] if path.startswith(_OF_SESSIONS) else ""


def is_private(path: str) -> bool:
    """Whether the content must not be returned as an artifact: secrets, git's and remit's files."""
    inner = path.split("/", 3)[3:] if path.startswith(_OF_SESSIONS) else [path]
    return not inner or protection_of(inner[0]) in (Protection.SECRET, Protection.GIT, Protection.RECORD)
