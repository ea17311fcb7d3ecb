"""The languages that are parsed: the wheel that brings the grammar, and one tree-sitter query for each.

Captures that `file_facts` understands: `def.KIND` and `scope` (a parent that is not itself a symbol) with `name` and `receiver`; `import`
with `what`; `lazy` (an import inside does not run with the module); `decision`; `entry`. To add a language, add an entry to `GRAMMARS` and
to `core.languages`.
"""

import importlib
import re
from functools import cache
from typing import Any, NamedTuple


class Grammar(NamedTuple):
    module: str
    query: str
    family: str = ""
    """How imports are resolved to files (see `imports`); empty: they are only listed."""
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
_GO = """
(function_declaration name: (identifier) @name) @def.function
(method_declaration receiver: (parameter_list (parameter_declaration type: (_) @receiver)) name: (field_identifier) @name) @def.method
(type_spec name: (type_identifier) @name type: (struct_type)) @def.struct
(type_spec name: (type_identifier) @name type: (interface_type)) @def.interface
(type_spec name: (type_identifier) @name) @def.type
(type_alias name: (type_identifier) @name) @def.type
(import_spec path: (_) @import)
[(if_statement) (for_statement)] @decision
[(expression_case) (type_case) (communication_case)] @decision
(binary_expression operator: ["&&" "||"]) @decision
((function_declaration name: (identifier) @word) @entry (#eq? @word "main"))
"""
_RUST = """
(function_item name: (identifier) @name) @def.function
(struct_item name: (type_identifier) @name) @def.struct
(enum_item name: (type_identifier) @name) @def.enum
(union_item name: (type_identifier) @name) @def.struct
(trait_item name: (type_identifier) @name) @def.trait
(type_item name: (type_identifier) @name) @def.type
(mod_item name: (identifier) @name body: (_)) @def.module
(macro_definition name: (identifier) @name) @def.macro
(impl_item type: (_) @name) @scope
(use_declaration argument: (_) @import)
(mod_item name: (identifier) @import !body) @lazy
(extern_crate_declaration name: (identifier) @import)
[(if_expression) (while_expression) (for_expression)] @decision
(match_arm pattern: (match_pattern (_))) @decision
(binary_expression operator: ["&&" "||"]) @decision
(source_file ((function_item name: (identifier) @word) @entry (#eq? @word "main")))
"""
_JAVA = """
(class_declaration name: (identifier) @name) @def.class
(record_declaration name: (identifier) @name) @def.class
(interface_declaration name: (identifier) @name) @def.interface
(annotation_type_declaration name: (identifier) @name) @def.interface
(enum_declaration name: (identifier) @name) @def.enum
(method_declaration name: (identifier) @name) @def.method
(constructor_declaration name: (identifier) @name) @def.method
(compact_constructor_declaration name: (identifier) @name) @def.method
(import_declaration [(scoped_identifier) (identifier)] @import)
[(if_statement) (for_statement) (enhanced_for_statement) (while_statement) (do_statement)] @decision
[(catch_clause) (ternary_expression)] @decision
(switch_label . (_)) @decision
(binary_expression operator: ["&&" "||"]) @decision
((method_declaration name: (identifier) @word) @entry (#eq? @word "main"))
"""
_C = """
(function_definition declarator: (function_declarator declarator: (_) @name)) @def.function
(function_definition declarator: (pointer_declarator declarator: (function_declarator declarator: (_) @name))) @def.function
(struct_specifier name: (_) @name body: (_)) @def.struct
(union_specifier name: (_) @name body: (_)) @def.struct
(enum_specifier name: (_) @name body: (_)) @def.enum
(type_definition declarator: (type_identifier) @name) @def.type
(preproc_function_def name: (identifier) @name) @def.macro
(preproc_include path: [(string_literal) (system_lib_string)] @import)
[(if_statement) (for_statement) (while_statement) (do_statement)] @decision
(conditional_expression) @decision
(case_statement value: (_)) @decision
(binary_expression operator: ["&&" "||"]) @decision
((function_definition declarator: (function_declarator declarator: (identifier) @word)) @entry (#eq? @word "main"))
"""
_CPP = """
(function_definition declarator: (reference_declarator (function_declarator declarator: (_) @name))) @def.function
(class_specifier name: (_) @name body: (_)) @def.class
(namespace_definition name: (_) @name) @def.module
(for_range_loop) @decision
(catch_clause) @decision
"""
GRAMMARS = {
    "Python": Grammar("tree_sitter_python", _PYTHON, "python"),
    "JavaScript": Grammar("tree_sitter_javascript", _SCRIPT + _JAVASCRIPT, "script"),
    "TypeScript": Grammar("tree_sitter_typescript", _SCRIPT + _TYPESCRIPT, "script", "language_typescript"),
    "TSX": Grammar("tree_sitter_typescript", _SCRIPT + _TYPESCRIPT, "script", "language_tsx"),
    "Go": Grammar("tree_sitter_go", _GO),
    "Rust": Grammar("tree_sitter_rust", _RUST),
    "Java": Grammar("tree_sitter_java", _JAVA),
    "C": Grammar("tree_sitter_c", _C),
    "C++": Grammar("tree_sitter_cpp", _C + _CPP),
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
