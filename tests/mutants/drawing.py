"""Draws lines of the source at random, and breaks each by one edit."""

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

_SWAPS: Final = (
    "Lt=LtE,GtE LtE=Lt,Gt Gt=GtE,LtE GtE=Gt,Lt Eq=NotEq NotEq=Eq Is=IsNot IsNot=Is In=NotIn NotIn=In "
    "And=Or Or=And Add=Sub Sub=Add"
)
_SWAPPED: Final = {swap.partition("=")[0]: swap.partition("=")[2].split(",") for swap in _SWAPS.split()}


@dataclass
class Mutant:
    """A broken line. It is found by its text, so that it survives edits of other lines."""

    path: str
    function: str  # the qualified name of the function or class around the line; empty at the top of a module
    before: str
    after: str
    tier: str = ""  # the last tier that judged it; empty before that
    test: str = ""  # the test that failed; empty if all passed
    note: str = ""  # what a person says of a survivor: "equivalent: ..."

    def place(self, source: str) -> int | None:
        """Return the index of the line, or ``None`` if its function has no such line, or several."""
        lines = source.split("\n")
        numbers = {node.lineno - 1 for name, node in _nodes(ast.parse(source)) if name == self.function}
        places = [number for number in numbers if lines[number].strip() == self.before]
        return places[0] if len(places) == 1 else None

    def applied(self, source: str) -> str | None:
        """Return the source with the line broken, or ``None`` if the source has no such line."""
        if (place := self.place(source)) is None:
            return None
        lines = source.split("\n")
        lines[place] = lines[place].replace(self.before, self.after)
        return "\n".join(lines)


def draw(root: Path, within: Path, number: int, seed: int) -> list[Mutant]:
    """Draw mutants of different lines. Each line that can be broken is equally likely."""
    found: dict[tuple[str, int], list[Mutant]] = {}
    for file in sorted(within.rglob("*.py")):
        path = file.relative_to(root).as_posix()
        for place, mutant in _mutants(path, file.read_text()):
            found.setdefault((path, place), []).append(mutant)
    dice = random.Random(seed)
    mutants = (dice.choice(found[key]) for key in dice.sample(sorted(found), len(found)))
    return list(islice((mutant for mutant in mutants if _is_different(mutant, root)), number))


def _is_different(mutant: Mutant, root: Path) -> bool:
    source = (root / mutant.path).read_text()
    try:
        return (after := mutant.applied(source)) is not None and ast.dump(ast.parse(after)) != ast.dump(
            ast.parse(source)
        )
    except SyntaxError:
        return False


def _mutants(path: str, source: str) -> Iterator[tuple[int, Mutant]]:
    lines = source.split("\n")
    for function, parent in _nodes(ast.parse(source)):
        for node, replacement in _edits(parent):
            if node.lineno == node.end_lineno:
                line, text = lines[node.lineno - 1].encode(), ast.unparse(replacement)
                if isinstance(replacement, ast.Compare | ast.BoolOp | ast.BinOp | ast.UnaryOp):
                    text = f"({text})"
                after = (line[: node.col_offset] + text.encode() + line[node.end_col_offset :]).decode()
                yield node.lineno - 1, Mutant(path, function, lines[node.lineno - 1].strip(), after.strip())


def _nodes(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.expr | ast.stmt]]:
    """Yield the nodes that a mutant may change, each with the name of the function around it."""
    for child in _children(node):
        match child:
            case ast.FunctionDef(name="__repr__") | ast.JoinedStr() | ast.Call(ast.Attribute(ast.Name("logger"))):
                continue  # text
            case ast.expr() | ast.stmt():
                yield function, child
        inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        yield from _nodes(child, f"{function}.{getattr(child, 'name', '')}".lstrip(".") if inner else function)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the children without annotations, decorators and what only type checkers see."""
    match node:
        case ast.FunctionDef(args=given) | ast.AsyncFunctionDef(args=given):
            yield from (*given.defaults, *filter(None, given.kw_defaults), *node.body)
        case ast.ClassDef(body=statements) | ast.If(test=ast.Name("TYPE_CHECKING"), orelse=statements):
            yield from statements
        case ast.AnnAssign(value=value):
            yield from filter(None, [value])
        case _:
            yield from ast.iter_child_nodes(node)


def _edits(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    """Yield pairs of a node, which is this one or a child, and its replacement."""
    match node:
        case ast.Compare(left, [operator], comparators):
            yield from ((node, ast.Compare(left, [swapped], comparators)) for swapped in _swapped(operator))
        case ast.BoolOp(operator, values):
            yield from ((node, ast.BoolOp(swapped, values)) for swapped in _swapped(operator))
        case ast.BinOp(left, ast.Add() | ast.Sub() as operator, right):
            yield from ((node, ast.BinOp(left, swapped, right)) for swapped in _swapped(operator))
        case ast.UnaryOp(ast.Not(), operand):
            yield node, operand
        case ast.Constant(bool() as value):
            yield node, ast.Constant(not value)
        case ast.Constant(int() | float() as value):
            yield node, ast.Constant(value + 1)
        case ast.Call(function, arguments, keywords):
            if len(arguments) > 1:
                yield node, ast.Call(function, arguments[:-1], keywords)
            for place in range(len(keywords)):
                yield node, ast.Call(function, arguments, keywords[:place] + keywords[place + 1 :])
        case _:
            yield from _edits_of_statement(node)


def _edits_of_statement(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST]]:
    match node:
        case ast.If(test) | ast.While(test) | ast.IfExp(test):
            if not isinstance(test, ast.Compare | ast.UnaryOp) and ast.unparse(test) != "TYPE_CHECKING":
                yield test, ast.UnaryOp(ast.Not(), test)
        case ast.Return(ast.expr() as value):
            is_none = isinstance(value, ast.Constant) and value.value is None
            yield node, ast.Return(ast.Constant(value=True if is_none else None))
        case (ast.Raise() | ast.Delete() | ast.Continue() | ast.Break() | ast.AugAssign()) | (
            ast.Expr(ast.Call() | ast.Await() | ast.Yield()) | ast.Assign([ast.Attribute() | ast.Subscript()])
        ):
            yield node, ast.Pass()


def _swapped(operator: ast.AST) -> Iterator[Any]:
    return (getattr(ast, name)() for name in _SWAPPED[type(operator).__name__])
