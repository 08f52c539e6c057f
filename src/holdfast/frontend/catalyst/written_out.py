"""Spark's expressions written out as operations, for loops.

Outside of loops, an expression that Holdfast does not compute crosses as Spark's own object. Inside a loop there is no
Spark. So an expression that operations can express there (`operators.expressions.written_functions`) is also written
out, over its holes, beside Spark's object. The written form does not count for the meaning (fingerprints): Spark's
object does.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.frontend.catalyst.expressions import Expressions
from holdfast.frontend.catalyst.literals import NotNative
from holdfast.frontend.catalyst.tree import CatalystExpression
from holdfast.plan.expression import Column, Operation, Tree, cast, hole_name, text

_FUNCTIONS = {
    "Abs": "abs",
    "ArrayAppend": "array_append",
    "ArrayContains": "array_contains",
    "ArrayPrepend": "array_prepend",
    "BitwiseAnd": "bit_and",
    "BitwiseNot": "bit_not",
    "BitwiseOr": "bit_or",
    "BitwiseXor": "bit_xor",
    "Concat": "concat",
    "ConcatWs": "concat_ws",
    "Contains": "contains",
    "CreateArray": "array",
    "CreateNamedStruct": "named_struct",
    "DateAdd": "date_add",
    "DateDiff": "datediff",
    "DateSub": "date_sub",
    "ElementAt": "element_at",
    "EndsWith": "endswith",
    "GetArrayItem": "get",
    "Greatest": "greatest",
    "IntegralDivide": "div",
    "Least": "least",
    "Length": "length",
    "Left": "left",
    "Like": "like",
    "Pmod": "pmod",
    "Right": "right",
    "ShiftLeft": "shiftleft",
    "ShiftRight": "shiftright",
    "Sqrt": "sqrt",
    "StartsWith": "startswith",
    "StringInstr": "instr",
    "StringLPad": "lpad",
    "StringLocate": "locate",
    "StringRPad": "rpad",
    "StringRepeat": "repeat",
    "StringReplace": "replace",
    "StringTrim": "trim",
}
_FAIL = frozenset(("Abs", "Ceil", "ElementAt", "Floor", "GetArrayItem", "IntegralDivide", "Pmod", "Remainder"))
"""Functions whose failure depends on the session's mode."""

_TEXT = frozenset(("Length", "StringTrim"))
_NOT_OF_BINARY = frozenset(("Concat", "Contains", "EndsWith", "StartsWith", "StringLPad", "StringRPad", "Substring"))


class WrittenOut(Expressions):
    """Converts the inside of one Spark expression: its holes become columns named by `hole_name`."""

    def __init__(self, around: Expressions, holes: Sequence[CatalystExpression]) -> None:
        super().__init__(around.statement, around.names, around.rows)
        self._places = {hole.path: place for place, hole in enumerate(holes)}
        self.lacking: CatalystExpression | None = None
        """The first part found that no operation expresses."""

    def _hole(self, expression: CatalystExpression) -> Tree:
        place = self._places.get(expression.path)
        return super()._hole(expression) if place is None else Column(hole_name(place), self.type_of(expression))

    def _native(self, expression: CatalystExpression) -> Tree:
        kind = expression.kind
        if kind in ("CreateArray", "CreateNamedStruct"):
            return self._operation(expression)
        try:
            return super()._native(expression)
        except NotNative:
            if self.lacking is not None:
                raise
        try:
            return self._operation(expression)
        except NotNative:
            self.lacking = self.lacking or expression
            raise

    def _operation(self, expression: CatalystExpression) -> Tree:
        kind, children = expression.kind, expression.children
        types = [self.type_of(child) for child in children]
        if any(self.collation(child) for child in children):
            raise NotNative("a collation")
        if kind in _FAIL and not self._is_ansi(expression):
            raise NotNative("it does not fail as ANSI SQL does")
        if (kind in _TEXT and types[0] != "string") or (kind in _NOT_OF_BINARY and "binary" in types):
            raise NotNative("of bytes")
        match kind:
            case "Cast" if self.statement.catalyst.mode(expression) == "ANSI":
                return cast(self._native(children[0]), self.type_of(expression))
            case "GetStructField":
                name = expression.parameters.get("name")
                names = self.statement.catalyst.hidden(expression, "extractFieldName") if name is None else name
                return Operation("field", (self._native(children[0]), text(str(names))), self.type_of(expression))
            case "Size" if not expression.parameters.get("legacySizeOfNull") and types[0].startswith("array<"):
                return self._made("size", expression)
            case "StringTrim" if len(children) > 1:
                raise NotNative("what is trimmed is said")
            case "Floor" | "Ceil" if types[0] in ("bigint", "double"):
                return self._made(kind.lower(), expression)
            case "Like" if self.statement.catalyst.hidden(expression, "escapeChar") != "\\":
                raise NotNative("another escape")
            case "Remainder":
                return self._made("%", expression)
            case "Substring":
                return self._made("substring", expression)
        if kind not in _FUNCTIONS:
            raise NotNative(kind)
        return self._made(_FUNCTIONS[kind], expression)


def written_out(
    around: Expressions, expression: CatalystExpression, holes: Sequence[CatalystExpression]
) -> tuple[Tree | None, str]:
    """Return (the expression as operations over its holes, ""), or (None, the function that no operation expresses)."""
    converting = WrittenOut(around, holes)
    try:
        return converting._native(expression), ""
    except NotNative:
        lacking = converting.lacking or expression
        return None, around.statement.catalyst.function_name(lacking)
