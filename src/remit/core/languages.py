"""Languages: the name that policy rules use for each executable language, and the language of a file by its extension."""

NAMES = {
    "python": "python",
    "python3": "python",
    "py": "python",
    "javascript": "javascript",
    "js": "javascript",
    "node": "javascript",
    "shell": "shell",
    "bash": "shell",
    "sh": "shell",
}


def plain_name(name: str) -> str:
    """The canonical name of a language; an unknown name in lower case."""
    small = name.strip().lower()
    return NAMES.get(small, small)


_EXTENSIONS = {
    "Python": ".py .pyi .pyw",
    "JavaScript": ".js .jsx .mjs .cjs",
    "TypeScript": ".ts .mts .cts",
    "TSX": ".tsx",
    "Go": ".go",
    "Rust": ".rs",
    "Java": ".java",
    "C": ".c .h",
    "C++": ".cc .cpp .cxx .hh .hpp .hxx .inl .ipp .tpp",
    "C#": ".cs",
    "Ruby": ".rb",
    "PHP": ".php",
    "Kotlin": ".kt .kts",
    "Swift": ".swift",
    "Scala": ".scala",
    "Lua": ".lua",
    "Perl": ".pl .pm",
    "R": ".r",
    "SQL": ".sql",
    "Shell": ".sh .bash .zsh",
    "Objective-C": ".m .mm",
    "Elixir": ".ex .exs",
    "Haskell": ".hs",
    "Lean": ".lean",
    "Vue": ".vue",
    "Svelte": ".svelte",
    "Markdown": ".md",
    "reStructuredText": ".rst",
    "text": ".txt",
    "JSON": ".json",
    "YAML": ".yaml .yml",
    "TOML": ".toml",
    "XML": ".xml",
    "HTML": ".html .htm",
    "CSS": ".css .scss .less",
}
BY_EXTENSION = {extension: language for language, extensions in _EXTENSIONS.items() for extension in extensions.split()}
"""Display name of a language by lower-case file extension with its dot."""
