"""What a file is, by its name: its language, whether it is a test, a document, generated, a list of dependencies. Pure."""

import re

_BY_ENDING = {
    "py": "python",
    "pyi": "python",
    "js": "javascript",
    "mjs": "javascript",
    "cjs": "javascript",
    "jsx": "javascript",
    "ts": "typescript",
    "mts": "typescript",
    "cts": "typescript",
    "tsx": "tsx",
    "go": "go",
    "rs": "rust",
    "java": "java",
    "c": "c",
    "h": "c",
    "cc": "cpp",
    "cpp": "cpp",
    "cxx": "cpp",
    "hpp": "cpp",
    "hh": "cpp",
    "sh": "shell",
    "bash": "shell",
    "zsh": "shell",
    "rb": "ruby",
    "php": "php",
    "sql": "sql",
    "json": "json",
    "yaml": "yaml",
    "yml": "yaml",
    "toml": "toml",
    "kt": "kotlin",
    "cs": "csharp",
    "swift": "swift",
    "scala": "scala",
    "vue": "html",
    "svelte": "html",
    "html": "html",
    "htm": "html",
}
CODE = frozenset(
    {
        "python",
        "javascript",
        "typescript",
        "tsx",
        "go",
        "rust",
        "java",
        "c",
        "cpp",
        "shell",
        "ruby",
        "php",
        "kotlin",
        "csharp",
        "swift",
        "scala",
    }
)
_DEPENDENCIES = re.compile(
    r"^(requirements[\w.-]{0,80}\.(txt|in)|pyproject\.toml|setup\.(py|cfg)|Pipfile|package\.json|go\.mod|Cargo\.toml|pom\.xml"
    r"|build\.gradle(\.kts)?|Gemfile|composer\.json|environment\.ya?ml)$"
)
_LOCKS = re.compile(
    r"^(package-lock\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|poetry\.lock|uv\.lock|pdm\.lock|Pipfile\.lock|Cargo\.lock"
    r"|go\.sum|Gemfile\.lock|composer\.lock|bun\.lockb?|flake\.lock)$"
)
_TEST_NAME = re.compile(r"^(test_.{0,200}|.{0,200}_test|.{0,200}\.(test|spec|cy)|.{0,200}Tests?|conftest)$")
_TEST_FOLDERS = frozenset({"test", "tests", "__tests__", "spec", "specs", "testing", "e2e", "testdata", "fixtures"})
_GENERATED_FOLDERS = frozenset({"node_modules", "vendor", "third_party", "dist", "build", "__generated__", "generated", "site-packages"})
_DOCUMENTS = frozenset({"md", "rst", "txt", "adoc", "svg", "csv", "tsv", "ipynb", "po", "log", "tex"})


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def ending(path: str) -> str:
    stem, dot, end = _name(path).rpartition(".")
    return end.lower() if dot and stem else ""


def language(path: str, first_line: str = "") -> str:
    """Empty where it is none we know."""
    name = _name(path)
    if name.startswith(("Dockerfile", "Containerfile")):
        return "docker"
    known = _BY_ENDING.get(ending(path), "")
    if not known and first_line.startswith("#!"):
        for word, found in (("python", "python"), ("node", "javascript"), ("sh", "shell")):
            if word in first_line[:120]:
                return found
    return known


def is_test(path: str) -> bool:
    *folders, name = path.split("/")
    return bool(_TEST_FOLDERS.intersection(folders)) or _TEST_NAME.match(name.rpartition(".")[0][:300]) is not None


def is_document(path: str) -> bool:
    return ending(path) in _DOCUMENTS or _name(path) in ("LICENSE", "NOTICE", "AUTHORS", "CHANGELOG")


def is_lock(path: str) -> bool:
    return _LOCKS.match(_name(path)) is not None


def is_dependencies(path: str) -> bool:
    return _DEPENDENCIES.match(_name(path)) is not None


def is_generated(path: str) -> bool:
    *folders, name = path.split("/")
    return (
        bool(_GENERATED_FOLDERS.intersection(folders))
        or is_lock(path)
        or ".min." in name
        or name.endswith(("_pb2.py", ".pb.go", ".snap", ".map"))
    )


def is_script(path: str) -> bool:
    """Where printing is the purpose."""
    *folders, name = path.lower().split("/")
    stem = name.partition(".")[0]
    return stem in ("__main__", "main", "cli", "setup", "manage", "conftest", "noxfile", "tasks") or bool(
        {"scripts", "script", "tools", "bin", "cli", "examples", "example", "bench", "benchmarks", "demo", "demos", "docs"}.intersection(
            folders
        )
    )
