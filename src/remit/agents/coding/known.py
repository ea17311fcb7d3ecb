"""The coding agents that `remit agents --detect` looks for: how each is started, and where it keeps its login.

Data only. Whether one is there and usable is found out by `detect`.
"""

from dataclasses import dataclass

from remit.agents.definition import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    name: str
    """Of the agent, in remit.toml."""
    about: str
    program: str
    kind: Kind
    arguments: tuple[str, ...] = ()
    """What makes it speak the Agent Client Protocol."""
    install: str = ""
    keys: tuple[str, ...] = ()
    """Variables that hold a login of it. Whether they are set is looked at, never what they hold."""
    login_files: tuple[str, ...] = ()
    """Files that hold one; `$NAME/` at the beginning is that variable's folder, where it is set."""
    pass_environment: tuple[str, ...] = ()
    """What it must be given, for a kind whose adapter does not know."""
    is_tried: bool = False
    """Whether our tests run the real one. Of the others the option that makes them speak the protocol may have changed."""


_ANTHROPIC = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX")
_CLAUDE_FILES = ("$CLAUDE_CONFIG_DIR/.credentials.json", "~/.claude/.credentials.json")
_OPENAI = ("OPENAI_API_KEY", "CODEX_API_KEY")
_CODEX_FILES = ("$CODEX_HOME/auth.json", "~/.codex/auth.json")

KNOWN = (
    Known(
        name="claude",
        about="Claude Code",
        program="claude",
        kind=Kind.CLAUDE,
        is_tried=True,
        install="npm install -g @anthropic-ai/claude-code",
        keys=_ANTHROPIC,
        login_files=_CLAUDE_FILES,
    ),
    Known(
        name="codex",
        about="Codex",
        program="codex",
        kind=Kind.CODEX,
        is_tried=True,
        install="npm install -g @openai/codex",
        keys=_OPENAI,
        login_files=_CODEX_FILES,
    ),
    Known(
        name="opencode",
        about="OpenCode",
        program="opencode",
        kind=Kind.OPENCODE,
        is_tried=True,
        install="npm install -g opencode-ai",
        keys=("OPENCODE_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
        login_files=("$XDG_DATA_HOME/opencode/auth.json", "~/.local/share/opencode/auth.json", "~/.config/opencode/opencode.json"),
    ),
    Known(
        name="gemini",
        about="Gemini CLI",
        program="gemini",
        kind=Kind.ACP,
        arguments=("--experimental-acp",),
        install="npm install -g @google/gemini-cli",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"),
        login_files=("~/.gemini/oauth_creds.json",),
        pass_environment=("GEMINI_*", "GOOGLE_*"),
    ),
    Known(
        name="qwen",
        about="Qwen Code",
        program="qwen",
        kind=Kind.ACP,
        arguments=("--experimental-acp",),
        install="npm install -g @qwen-code/qwen-code",
        keys=("OPENAI_API_KEY", "DASHSCOPE_API_KEY"),
        login_files=("~/.qwen/oauth_creds.json",),
        pass_environment=("OPENAI_*", "DASHSCOPE_*"),
    ),
    Known(
        name="goose",
        about="goose",
        program="goose",
        kind=Kind.ACP,
        arguments=("acp",),
        keys=("GOOSE_PROVIDER",),
        login_files=("$XDG_CONFIG_HOME/goose/config.yaml", "~/.config/goose/config.yaml"),
        pass_environment=("GOOSE_*",),
    ),
    Known(
        name="auggie",
        about="Auggie",
        program="auggie",
        kind=Kind.ACP,
        arguments=("--acp",),
        install="npm install -g @augmentcode/auggie",
        keys=("AUGMENT_SESSION_AUTH",),
        login_files=("~/.augment/session.json",),
        pass_environment=("AUGMENT_*",),
    ),
    Known(
        name="claude-acp",
        about="Claude Code over the Agent Client Protocol",
        program="claude-code-acp",
        kind=Kind.ACP,
        keys=_ANTHROPIC,
        login_files=_CLAUDE_FILES,
        pass_environment=("ANTHROPIC_*", "CLAUDE_*"),
    ),
    Known(
        name="claude-agent-acp",
        about="Claude over the Agent Client Protocol",
        program="claude-agent-acp",
        kind=Kind.ACP,
        keys=_ANTHROPIC,
        login_files=_CLAUDE_FILES,
        pass_environment=("ANTHROPIC_*", "CLAUDE_*"),
    ),
    Known(
        name="codex-acp",
        about="Codex over the Agent Client Protocol",
        program="codex-acp",
        kind=Kind.ACP,
        keys=_OPENAI,
        login_files=_CODEX_FILES,
        pass_environment=("OPENAI_*", "CODEX_*"),
    ),
)
