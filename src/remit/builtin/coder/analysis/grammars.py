"""The languages that are parsed: the wheel that brings the grammar, and one tree-sitter query for each. lizard counts the others.

Captures that `file_facts` understands: `function` and `scope` (a class) with `name`; `import` with `what`; `lazy` (an import
inside does not run with the module); `branch` (a decision that nests), `decision`, `nest`, `elif` (nests no deeper than its `if`);
`entry`, `test`. To add a language, add an entry to `GRAMMARS` and to `core.languages`.
"""

import importlib
import re
from functools import cache
from typing import Any, NamedTuple


class Grammar(NamedTuple):
    module: str
    query: str
    family: str
    """How imports are resolved to files (see `imports`)."""
    function: str = "language"


_PYTHON = """
(function_definition name: (identifier) @name) @function
(class_definition name: (identifier) @name) @scope
(import_statement name: [(dotted_name) @import (aliased_import name: (dotted_name) @import)])
(import_from_statement module_name: (_) @import name: [(dotted_name) @what (aliased_import name: (dotted_name) @what)])
(import_from_statement module_name: (_) @import (wildcard_import))
[(if_statement) (for_statement) (while_statement)] @branch
[(elif_clause) (except_clause) (conditional_expression) (boolean_operator) (for_in_clause) (if_clause)] @decision
(case_clause . (case_pattern (_))) @decision
[(try_statement) (with_statement) (match_statement)] @nest
((if_statement condition: (comparison_operator . (identifier) @word)) @entry @lazy (#eq? @word "__name__"))
((if_statement condition: [(identifier) (attribute)] @word) @lazy (#match? @word "TYPE_CHECKING$"))
"""
_SCRIPT = """
(function_declaration name: (identifier) @name) @function
(generator_function_declaration name: (identifier) @name) @function
(method_definition name: (_) @name) @function
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)]) @function
(pair key: (property_identifier) @name value: [(arrow_function) (function_expression)]) @function
(assignment_expression left: (member_expression) @name right: [(arrow_function) (function_expression)]) @function
(import_statement source: (string) @import)
(export_statement source: (string) @import)
((call_expression function: (identifier) @word arguments: (arguments . (string) @import)) (#eq? @word "require"))
(call_expression function: (import) arguments: (arguments . (string) @import)) @lazy
((call_expression function: (identifier) @word arguments: (arguments . [(string) (template_string)] . [(arrow_function)
  (function_expression)])) @test (#any-of? @word "it" "test" "specify"))
[(if_statement) (for_statement) (for_in_statement) (while_statement) (do_statement)] @branch
[(catch_clause) (ternary_expression) (switch_case)] @decision
(binary_expression operator: ["&&" "||" "??"]) @decision
[(try_statement) (switch_statement)] @nest
(else_clause (if_statement) @elif)
"""
_JAVASCRIPT = """
(class_declaration name: (identifier) @name) @scope
(field_definition property: (_) @name value: [(arrow_function) (function_expression)]) @function
"""
_TYPESCRIPT = """
(class_declaration name: (type_identifier) @name) @scope
(abstract_class_declaration name: (type_identifier) @name) @scope
(internal_module name: (_) @name) @scope
(public_field_definition name: (_) @name value: [(arrow_function) (function_expression)]) @function
(import_statement "type" source: (string) @import) @lazy
(import_require_clause source: (string) @import)
"""
GRAMMARS = {
    "Python": Grammar("tree_sitter_python", _PYTHON, "python"),
    "JavaScript": Grammar("tree_sitter_javascript", _SCRIPT + _JAVASCRIPT, "script"),
    "TypeScript": Grammar("tree_sitter_typescript", _SCRIPT + _TYPESCRIPT, "script", "language_typescript"),
    "TSX": Grammar("tree_sitter_typescript", _SCRIPT + _TYPESCRIPT, "script", "language_tsx"),
}
TEST_FILE = re.compile(
    r"/(tests?|__tests__|spec|e2e|benches)/|/src/it/|/test_[^/]*$|/conftest\.py$|[._-](unit)?(tests?|spec)\.\w+$|(Tests?|TestCase|IT)\.java$"
)
"""Matched against a path with a slash before it."""
TEST_NAME = re.compile(r"^(test|Test|Benchmark|Fuzz|Example|TEST|TYPED_TEST|SCENARIO|BOOST_AUTO_TEST_CASE)")


@cache
def load(language: str) -> tuple[Any, Any]:
    """Parser and query, made once per process."""
    import tree_sitter

    grammar = GRAMMARS[language]
    made = tree_sitter.Language(getattr(importlib.import_module(grammar.module), grammar.function)())
    return tree_sitter.Parser(made), tree_sitter.Query(made, grammar.query)
