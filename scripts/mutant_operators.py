"""Mutants for scripts/run_mutants: small changes of a C++ or Python source, one at a time."""

import ast
import collections
import fnmatch
import json
import os
import re

# `text[start:end]` of the file at `path` becomes `after`.
Mutant = collections.namedtuple("Mutant", "path line operator start end before after")

_RELATIONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
_ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "//": "*"}
_LOGIC = {"&&": "||", "||": "&&", "and": "or", "or": "and"}


def mutants_of(path, text):
    """Returns the list of all mutants of a file, in the order of the text."""
    find = _python_changes if path.endswith(".py") else _cpp_changes
    changes = {(start, end, after): operator for operator, start, end, after in find(text)}
    return [
        Mutant(path, text.count("\n", 0, start) + 1, operator, start, end, text[start:end], after)
        for (start, end, after), operator in sorted(changes.items())
        if text[start:end] != after
    ]


def equivalents():
    """Returns a function that returns the entry for a mutant that changes no result, or None.

    An entry of equivalent_mutants.json has a pattern of paths, a regular expression for the line,
    the reason and, if it is only about some changes, their text before and after.
    """
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    with open(os.path.join(root, "scripts", "equivalent_mutants.json")) as file:
        entries = json.load(file)

    def entry_of(mutant):
        for entry in entries:
            if not fnmatch.fnmatch(mutant.path, entry["path"]):
                continue
            if entry.get("before", mutant.before) != mutant.before:
                continue
            if entry.get("after", mutant.after) != mutant.after:
                continue
            with open(os.path.join(root, mutant.path), encoding="utf-8") as file:
                line = file.read().splitlines()[mutant.line - 1]
            if re.search(entry["line"], line):
                return entry
        return None

    return entry_of


# --- C++ ---


def _cpp_changes(text):
    """Yields (operator, start, end, replacement).

    clang-format puts spaces around binary operators, and none inside of template arguments and
    around the stars of types.
    """
    code = _without_comments(text)
    # A static_assert is a test of its own; what the preprocessor decides is not code of one build.
    # More elements of an array than needed change nothing, fewer are for the address sanitizer.
    array = r"(?<!return)[\w>*&] \w+\[\d+\](?=;| =|\{)"
    for match in re.finditer(r"^#(.*\\\n)*.*$|static_assert\([^;]*;|" + array, code, re.M):
        code = _blanked(code, *match.span())
    for match in re.finditer(r" (<=|>=|==|!=|<|>) ", code):
        yield ("relation", *match.span(1), _RELATIONS[match.group(1)])
    for match in re.finditer(r"(?<=[\w)\]]) ([-+*/%]) (?=[\w(&])", code):
        yield ("arithmetic", *match.span(1), _ARITHMETIC[match.group(1)])
    for match in re.finditer(r" ([-+])= ", code):
        yield ("arithmetic", *match.span(1), _ARITHMETIC[match.group(1)])
    for match in re.finditer(r" (&&|\|\|) ", code):
        yield ("logic", *match.span(1), _LOGIC[match.group(1)])
    for match in re.finditer(r"(?<![\w.'])(\d+)(?![\w.'])", code):
        for change in (1, -1):
            yield ("constant", *match.span(), str(int(match.group()) + change))
    for match in re.finditer(r"\b(true|false)\b", code):
        yield ("constant", *match.span(), "false" if match.group() == "true" else "true")
    for match in re.finditer(r"\bif \(", code):
        end = _closing(code, match.end() - 1)
        yield ("negation", match.end(), end, "!(%s)" % text[match.end() : end])
    for match in re.finditer(r"memory_order_(acquire|release|acq_rel|seq_cst)\b", code):
        yield ("memory order", *match.span(), "memory_order_relaxed")
    yield from _cpp_statements(text, code)
    yield from _cpp_arguments(text, code)


def _cpp_statements(text, code):
    """Yields the removals of calls, assignments and increments, no declarations or returns."""
    start = r"(?:(?<=[;{})])|(?<=else))\s*\n?\s*"
    effect = r"(?:\+\+|--|\*)?[A-Za-z_][\w.:\[\]>-]*(?:\(| [-+*/|&^%]?= |\+\+|--|;)"
    for match in re.finditer(start + "(%s)" % effect, code):
        if re.match(r"(return|break|continue|case|using|public|private|namespace)\b", match[1]):
            continue
        end = code.find(";", match.start(1))
        statement = code[match.start(1) : end]
        if end > 0 and _is_balanced(statement) and "{" not in statement:
            yield ("statement", match.start(1), end, "")


def _cpp_arguments(text, code):
    """Yields calls whose first two arguments, plain expressions, are swapped."""
    argument = r"([\w.&*\[\]>-]+(?:\(\))?)"
    for match in re.finditer(r"\b\w+\(" + argument + ", " + argument + r"(?=[,)])", code):
        first, second = match.group(1), match.group(2)
        yield ("arguments", match.start(1), match.end(2), "%s, %s" % (second, first))


def _without_comments(text):
    """Returns the text with blanks in place of comments and the contents of strings."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\''
    code = text
    for match in re.finditer(pattern, text, re.S):
        code = _blanked(code, *match.span())
    return code


def _blanked(code, start, end):
    return code[:start] + re.sub(r"[^\n]", " ", code[start:end]) + code[end:]


def _closing(code, opening):
    """Returns the place of the parenthesis that closes the one at `opening`."""
    depth = 0
    for place in range(opening, len(code)):
        depth += {"(": 1, ")": -1}.get(code[place], 0)
        if depth == 0:
            return place
    raise ValueError("A parenthesis is not closed.")


def _is_balanced(code):
    return all(code.count(left) == code.count(right) for left, right in ("()", "{}", "[]"))


# --- Python ---


def _python_changes(text):
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    if not text.isascii():
        return  # ast counts columns in bytes

    def span(node):
        return (
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + node.end_col_offset,
        )

    for node in ast.walk(ast.parse(text)):
        for change in _changes_of_node(node):
            operator, left, right, after = change(text, span)
            yield operator, left, right, after


def _changes_of_node(node):
    """Yields functions of (text, span) that return (operator, start, end, replacement)."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield _between("relation", node.left, node.comparators[0], _PYTHON_RELATIONS)
    elif isinstance(node, ast.BinOp):
        if not isinstance(node.left, (ast.Constant, ast.JoinedStr)):  # no formatting of strings
            yield _between("arithmetic", node.left, node.right, _ARITHMETIC)
    elif isinstance(node, ast.BoolOp):
        yield _between("logic", node.values[0], node.values[1], _LOGIC)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield lambda text, span: ("negation", *span(node), _text(text, span, node.operand))
    elif isinstance(node, (ast.If, ast.IfExp, ast.While)):
        yield lambda text, span: (
            "negation",
            *span(node.test),
            "not (%s)" % _text(text, span, node.test),
        )
    elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
        yield from _constants(node)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield lambda text, span: ("statement", *span(node), "pass")
    elif isinstance(node, (ast.AugAssign, ast.Raise)):
        yield lambda text, span: ("statement", *span(node), "pass")
    elif isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield lambda text, span: ("statement", *span(node), "return None")
    elif isinstance(node, ast.Call) and len(node.args) >= 2:
        first, second = node.args[:2]
        if not any(isinstance(value, (ast.Starred, ast.Constant)) for value in (first, second)):
            yield lambda text, span: (
                "arguments",
                span(first)[0],
                span(second)[1],
                "%s, %s" % (_text(text, span, second), _text(text, span, first)),
            )


def _constants(node):
    value = node.value
    for changed in [not value] if isinstance(value, bool) else [value + 1, value - 1]:
        yield lambda text, span, changed=changed: ("constant", *span(node), repr(changed))


_PYTHON_RELATIONS = dict(
    _RELATIONS, **{"is": "is not", "is not": "is", "in": "not in", "not in": "in"}
)


def _between(operator, left, right, table):
    """Returns the change of the operator between two nodes; no change if it is not in the table."""

    def change(text, span):
        start, end = span(left)[1], span(right)[0]
        match = re.search(r"[-+*/%<>=!]+|\b(?:is not|not in|is|in|and|or)\b", text[start:end])
        if match is None or match.group() not in table:
            return operator, start, start, ""
        return operator, start + match.start(), start + match.end(), table[match.group()]

    return change


def _text(text, span, node):
    start, end = span(node)
    return text[start:end]
