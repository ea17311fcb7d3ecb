"""What is asked of each grammar, as tree-sitter queries: they run in C. See `languages` for what the captures mean."""

PYTHON = """
(function_definition name: (identifier) @name) @def.function
(class_definition name: (identifier) @name) @def.class
(import_statement name: [(dotted_name) @import (aliased_import name: (dotted_name) @import)])
(import_from_statement module_name: (_) @import name: [(dotted_name) @what (aliased_import name: (dotted_name) @what)])
(import_from_statement module_name: (_) @import (wildcard_import) @what)
[(if_statement) (for_statement) (while_statement)] @branch
[(elif_clause) (except_clause) (conditional_expression) (boolean_operator) (for_in_clause) (if_clause)] @decision
(case_clause . (case_pattern (_))) @decision
[(try_statement) (with_statement) (match_statement)] @nest
(comment) @comment
(module . (comment)* . (expression_statement (string) @doc))
(function_definition body: (block . (expression_statement (string) @doc)))
(class_definition body: (block . (expression_statement (string) @doc)))
(module (if_statement condition: (comparison_operator (identifier) @entry.word)) @entry)
(if_statement condition: [(identifier) (attribute)] @typing.word) @typing
"""

SCRIPT = """
(function_declaration name: (identifier) @name) @def.function
(generator_function_declaration name: (identifier) @name) @def.function
(method_definition name: (_) @name) @def.method
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)]) @def.function
(pair key: (property_identifier) @name value: [(arrow_function) (function_expression)]) @def.function
(assignment_expression left: (member_expression) @name right: [(arrow_function) (function_expression)]) @def.function
(import_statement source: (string) @import)
(export_statement source: (string) @import)
(call_expression function: (identifier) @require arguments: (arguments . (string) @import))
(call_expression function: (import) @lazy arguments: (arguments . (string) @import))
(call_expression function: (identifier) @test.word
  arguments: (arguments . [(string) (template_string)] . [(arrow_function) (function_expression)]))
[(if_statement) (for_statement) (for_in_statement) (while_statement) (do_statement)] @branch
[(catch_clause) (ternary_expression) (switch_case)] @decision
(binary_expression operator: ["&&" "||" "??"]) @decision
[(try_statement) (switch_statement)] @nest
(else_clause (if_statement) @elif)
(comment) @comment
"""

JAVASCRIPT = """
(class_declaration name: (identifier) @name) @def.class
(field_definition property: (_) @name value: [(arrow_function) (function_expression)]) @def.method
"""

TYPESCRIPT = """
(class_declaration name: (type_identifier) @name) @def.class
(abstract_class_declaration name: (type_identifier) @name) @def.class
(interface_declaration name: (type_identifier) @name) @def.interface
(type_alias_declaration name: (type_identifier) @name) @def.type
(enum_declaration name: (identifier) @name) @def.enum
(internal_module name: (_) @name) @def.module
(public_field_definition name: (_) @name value: [(arrow_function) (function_expression)]) @def.method
(import_statement "type" @lazy source: (string) @import)
(import_require_clause source: (string) @import)
"""

GO = """
(function_declaration name: (identifier) @name) @def.function
(method_declaration receiver: (parameter_list (parameter_declaration type: (_) @receiver)) name: (field_identifier) @name) @def.method
(type_spec name: (type_identifier) @name type: (struct_type)) @def.struct
(type_spec name: (type_identifier) @name type: (interface_type)) @def.interface
(type_spec name: (type_identifier) @name) @def.type
(type_alias name: (type_identifier) @name) @def.type
(import_spec path: (_) @import)
(package_clause (package_identifier) @package)
[(if_statement) (for_statement)] @branch
[(expression_case) (type_case) (communication_case)] @decision
(binary_expression operator: ["&&" "||"]) @decision
[(expression_switch_statement) (type_switch_statement) (select_statement)] @nest
(if_statement alternative: (if_statement) @elif)
(comment) @comment
"""

RUST = """
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
(mod_item name: (identifier) @submodule !body)
(extern_crate_declaration name: (identifier) @import)
(attribute_item (attribute (_) @test.word))
[(if_expression) (while_expression) (for_expression)] @branch
(match_arm pattern: (match_pattern (_))) @decision
(binary_expression operator: ["&&" "||"]) @decision
[(match_expression) (loop_expression)] @nest
(else_clause (if_expression) @elif)
[(line_comment) (block_comment)] @comment
"""

JAVA = """
(class_declaration name: (identifier) @name) @def.class
(record_declaration name: (identifier) @name) @def.class
(interface_declaration name: (identifier) @name) @def.interface
(annotation_type_declaration name: (identifier) @name) @def.interface
(enum_declaration name: (identifier) @name) @def.enum
(method_declaration name: (identifier) @name) @def.method
(constructor_declaration name: (identifier) @name) @def.method
(compact_constructor_declaration name: (identifier) @name) @def.method
(import_declaration [(scoped_identifier) (identifier)] @import)
(import_declaration [(scoped_identifier) (identifier)] @import (asterisk) @what)
(package_declaration [(scoped_identifier) (identifier)] @package)
(marker_annotation name: (identifier) @test.word)
(annotation name: (identifier) @test.word)
[(if_statement) (for_statement) (enhanced_for_statement) (while_statement) (do_statement)] @branch
[(catch_clause) (ternary_expression)] @decision
(switch_label . (_)) @decision
(binary_expression operator: ["&&" "||"]) @decision
[(try_statement) (try_with_resources_statement) (switch_expression)] @nest
(if_statement alternative: (if_statement) @elif)
[(line_comment) (block_comment)] @comment
"""

C = """
(function_definition declarator: (function_declarator declarator: (_) @name)) @def.function
(function_definition declarator: (pointer_declarator declarator: (function_declarator declarator: (_) @name))) @def.function
(function_definition
  declarator: (pointer_declarator declarator: (pointer_declarator declarator: (function_declarator declarator: (_) @name)))) @def.function
(struct_specifier name: (_) @name body: (_)) @def.struct
(union_specifier name: (_) @name body: (_)) @def.struct
(enum_specifier name: (_) @name body: (_)) @def.enum
(type_definition declarator: (type_identifier) @name) @def.type
(preproc_function_def name: (identifier) @name) @def.macro
(preproc_include path: [(string_literal) (system_lib_string)] @import)
[(if_statement) (for_statement) (while_statement) (do_statement)] @branch
(conditional_expression) @decision
(case_statement value: (_)) @decision
(binary_expression operator: ["&&" "||"]) @decision
(switch_statement) @nest
(else_clause (if_statement) @elif)
(comment) @comment
"""

CPP = """
(function_definition declarator: (reference_declarator (function_declarator declarator: (_) @name))) @def.function
(class_specifier name: (_) @name body: (_)) @def.class
(namespace_definition name: (_) @name) @def.module
(for_range_loop) @branch
(catch_clause) @decision
(try_statement) @nest
"""
