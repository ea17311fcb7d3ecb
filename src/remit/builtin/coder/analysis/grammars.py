"""The languages that are parsed: the wheel that brings the grammar, and one tree-sitter query for each.

Captures that `file_facts` understands: `def.KIND` with `name`; `import` with `what`; `lazy` (an import inside does not run with the
module); `decision`; `entry`. Of other languages lizard finds the functions.
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
(function_definition name: (identifier) @name) @def.function
(class_definition name: (identifier) @name) @def.class
(import_statement name: [(dotted_name) @import (aliased_import name: (dotted_name) @import)])
(import_from_statement module_name: (_) @import name: [(dotted_name) @what (aliased_import name: (dotted_name) @what)])
(import_from_statement module_name: (_) @import (wildcard_import))
[(if_statement) (for_statement) (while_statement)] @decision
[(elif_clause) (except_clause) (conditional_expression) (boolean_operator) (for_in_clause) (if_clause)] @decision
(case_clause . (case_pattern (_))) @decision
((if_statement condition: (comparison_operator . (identifier) @word)) @entry @lazy (#eq? @word "__name__"))
((if_statement condition: [(identifier) (attribute)] @word) @lazy (#match? @word "TYPE_CHECKING$"))
"""
_SCRIPT = """
(function_declaration name: (identifier) @name) @def.function
(generator_function_declaration name: (identifier) @name) @def.function
(method_definition name: (_) @name) @def.method
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)]) @def.function
(pair key: (property_identifier) @name value: [(arrow_function) (function_expression)]) @def.function
(assignment_expression left: (member_expression) @name right: [(arrow_function) (function_expression)]) @def.function
(import_statement source: (string) @import)
(export_statement source: (string) @import)
((call_expression function: (identifier) @word arguments: (arguments . (string) @import)) (#eq? @word "require"))
(call_expression function: (import) arguments: (arguments . (string) @import)) @lazy
[(if_statement) (for_statement) (for_in_statement) (while_statement) (do_statement)] @decision
[(catch_clause) (ternary_expression) (switch_case)] @decision
(binary_expression operator: ["&&" "||" "??"]) @decision
"""
_JAVASCRIPT = """
(class_declaration name: (identifier) @name) @def.class
(field_definition property: (_) @name value: [(arrow_function) (function_expression)]) @def.method
"""
_TYPESCRIPT = """
(class_declaration name: (type_identifier) @name) @def.class
(abstract_class_declaration name: (type_identifier) @name) @def.class
(interface_declaration name: (type_identifier) @name) @def.interface
(type_alias_declaration name: (type_identifier) @name) @def.type
(enum_declaration name: (identifier) @name) @def.enum
(internal_module name: (_) @name) @def.module
(public_field_definition name: (_) @name value: [(arrow_function) (function_expression)]) @def.method
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


@cache
def load(language: str) -> tuple[Any, Any]:
    """Parser and query, made once per process."""
    import tree_sitter

    grammar = GRAMMARS[language]
    made = tree_sitter.Language(getattr(importlib.import_module(grammar.module), grammar.function)())
    return tree_sitter.Parser(made), tree_sitter.Query(made, grammar.query)
