"""The languages that are read, one entry each: whose files they are, the grammar, what is asked of it, what a test looks like.

Adding a language is one `Language` here, and one function in `resolving` where its imports are to lead to files. Captures that `reading`
understands: `def.KIND` with `name` (and `receiver`), `scope` with `name` (no symbol, but a parent of some), `import` (with `what`,
`lazy`), `branch` (a decision that nests), `decision`, `nest`, `elif` (an if that nests no deeper than the one it belongs to), `comment`,
`doc`, `package`, `entry` with `entry.word`, `typing` with `typing.word`, `test.word`.
"""

import re
from dataclasses import dataclass, field

from remit.agents.builtin.coder.analysis import queries


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    name: str
    extensions: tuple[str, ...]
    grammar: str
    """The module that brings it."""
    query: str
    grammar_function: str = "language"
    family: str = ""
    """How its imports are resolved: see `resolving`."""
    main_function: str = ""
    """A top-level function of this name is where a program begins."""
    test_file: re.Pattern[str] = re.compile(r"(?!)")
    """Matched against the path, with / before its first part."""
    test_function: re.Pattern[str] = re.compile(r"(?!)")
    """Matched against the names of functions; in any file where `tests_anywhere`."""
    tests_anywhere: bool = False
    test_words: frozenset[str] = frozenset()
    """What a `test.word` must be: an annotation, or the function that is called with a test."""
    entry_words: frozenset[str] = frozenset()
    index_names: frozenset[str] = frozenset()
    """Files that mostly hand on what others of their folder hold."""
    interpreters: tuple[str, ...] = field(default=())
    """What stands in the first line of a script that has no extension."""


_SCRIPT_TESTS = re.compile(r"(\.|-|_)(test|spec)s?\.[cm]?[jt]sx?$|/__tests__/|/(tests?|spec|e2e)/", re.IGNORECASE)
_C_TESTS = re.compile(r"/(tests?|unittests?|gtest)/|/test_[^/]*$|[_-](unit)?tests?\.\w+$", re.IGNORECASE)
_C_TEST_NAMES = re.compile(r"^(TEST(_F|_P|_CASE|_METHOD)?|TYPED_TEST|SCENARIO|BOOST_AUTO_TEST_CASE|START_TEST)$|^test_")
_TEST_CALLS = frozenset({"it", "test", "specify"})

LANGUAGES: tuple[Language, ...] = (
    Language(
        name="Python", extensions=(".py", ".pyi", ".pyw"), grammar="tree_sitter_python", query=queries.PYTHON, family="python",
        test_file=re.compile(r"/test_[^/]*\.py$|_test\.py$|/conftest\.py$|/tests?/|/testing?/test"), test_function=re.compile(r"^test"),
        entry_words=frozenset({"__name__"}), index_names=frozenset({"__init__.py", "__init__.pyi"}), interpreters=("python",),
    ),
    Language(
        name="JavaScript", extensions=(".js", ".jsx", ".mjs", ".cjs"), grammar="tree_sitter_javascript",
        query=queries.SCRIPT + queries.JAVASCRIPT, family="script",
        test_file=_SCRIPT_TESTS, test_words=_TEST_CALLS, index_names=frozenset({"index.js", "index.jsx", "index.mjs", "index.cjs"}),
        interpreters=("node",),
    ),
    Language(
        name="TypeScript", extensions=(".ts", ".mts", ".cts"), grammar="tree_sitter_typescript", grammar_function="language_typescript",
        query=queries.SCRIPT + queries.TYPESCRIPT, family="script",
        test_file=_SCRIPT_TESTS, test_words=_TEST_CALLS, index_names=frozenset({"index.ts", "index.mts"}), interpreters=("deno", "tsx"),
    ),
    Language(
        name="TSX", extensions=(".tsx",), grammar="tree_sitter_typescript", grammar_function="language_tsx",
        query=queries.SCRIPT + queries.TYPESCRIPT, family="script",
        test_file=_SCRIPT_TESTS, test_words=_TEST_CALLS, index_names=frozenset({"index.tsx"}),
    ),
    Language(
        name="Go", extensions=(".go",), grammar="tree_sitter_go", query=queries.GO, family="go", main_function="main",
        test_file=re.compile(r"_test\.go$"), test_function=re.compile(r"^(Test|Benchmark|Fuzz|Example)(?![a-z])"),
    ),
    Language(
        name="Rust", extensions=(".rs",), grammar="tree_sitter_rust", query=queries.RUST, family="rust", main_function="main",
        test_file=re.compile(r"/(tests|benches)/|/tests?\.rs$|_tests?\.rs$"),
        test_words=frozenset({"test", "tokio::test", "async_std::test", "rstest", "test_case", "quickcheck"}), tests_anywhere=True,
        index_names=frozenset({"mod.rs", "lib.rs"}),
    ),
    Language(
        name="Java", extensions=(".java",), grammar="tree_sitter_java", query=queries.JAVA, family="java", main_function="main",
        test_file=re.compile(r"/src/(test|it)/|/(Test[A-Z][^/]*|[^/]*(Tests?|IT|TestCase))\.java$"),
        test_words=frozenset({"Test", "ParameterizedTest", "RepeatedTest", "TestFactory"}),
    ),
    Language(
        name="C", extensions=(".c", ".h"), grammar="tree_sitter_c", query=queries.C, family="c", main_function="main",
        test_file=_C_TESTS, test_function=_C_TEST_NAMES,
    ),
    Language(
        name="C++", extensions=(".cc", ".cpp", ".cxx", ".c++", ".hh", ".hpp", ".hxx", ".h++", ".inl", ".ipp", ".tpp"),
        grammar="tree_sitter_cpp", query=queries.C + queries.CPP, family="c", main_function="main",
        test_file=_C_TESTS, test_function=_C_TEST_NAMES,
    ),
)  # fmt: skip

BY_NAME = {language.name: language for language in LANGUAGES}
BY_EXTENSION = {extension: language.name for language in LANGUAGES for extension in language.extensions}

OTHERS = {
    ".md": "Markdown", ".rst": "reStructuredText", ".txt": "text", ".json": "JSON", ".yaml": "YAML", ".yml": "YAML", ".toml": "TOML",
    ".xml": "XML", ".html": "HTML", ".htm": "HTML", ".css": "CSS", ".scss": "SCSS", ".less": "Less", ".sh": "Shell", ".bash": "Shell",
    ".zsh": "Shell", ".rb": "Ruby", ".php": "PHP", ".cs": "C#", ".kt": "Kotlin", ".kts": "Kotlin", ".swift": "Swift", ".scala": "Scala",
    ".lua": "Lua", ".pl": "Perl", ".pm": "Perl", ".r": "R", ".sql": "SQL", ".ex": "Elixir", ".exs": "Elixir", ".erl": "Erlang",
    ".hs": "Haskell", ".ml": "OCaml", ".clj": "Clojure", ".dart": "Dart", ".vue": "Vue", ".svelte": "Svelte", ".proto": "Protocol Buffers",
    ".tf": "Terraform", ".zig": "Zig", ".lean": "Lean", ".jl": "Julia", ".m": "Objective-C", ".mm": "Objective-C++", ".s": "Assembly",
    ".asm": "Assembly", ".cu": "CUDA", ".cmake": "CMake", ".gradle": "Gradle", ".groovy": "Groovy", ".ini": "INI", ".cfg": "INI",
    ".csv": "CSV", ".ipynb": "Jupyter notebook", ".pyx": "Cython", ".bat": "Batch", ".ps1": "PowerShell", ".scm": "Scheme",
    ".el": "Emacs Lisp",
    ".fs": "F#", ".graphql": "GraphQL", ".tex": "TeX", ".vim": "Vim script", ".nix": "Nix", ".jinja": "Jinja", ".j2": "Jinja",
    ".po": "Gettext",
}  # fmt: skip
"""Counted by lines, not parsed."""
PROGRAMMING = frozenset(OTHERS.values()) - {
    "Markdown", "reStructuredText", "text", "JSON", "YAML", "TOML", "XML", "INI", "CSV", "TeX", "Gettext", "Jupyter notebook", "HTML",
    "CSS",
}  # fmt: skip
"""Those of them that are programs: where one is large, the report says that it was not read."""


def language_of_script(first_line: bytes) -> str:
    """By what a script asks to be run with; empty for none that is read."""
    words = first_line[2:200].decode("latin-1").split() if first_line.startswith(b"#!") else []
    names = {word.rsplit("/", 1)[-1].rstrip("0123456789.") for word in words[:3]}
    return next((language.name for language in LANGUAGES if names.intersection(language.interpreters)), "")
