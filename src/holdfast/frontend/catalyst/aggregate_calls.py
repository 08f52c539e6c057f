"""An aggregate in a query: its arguments, FILTER's condition, and the collector of its calls.

A FILTER is written into the arguments as NULLs, since aggregates skip NULLs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from holdfast.errors import Unsupported
from holdfast.frontend.catalyst.statement import Statement
from holdfast.frontend.catalyst.tree import CatalystExpression
from holdfast.plan.expression import Tree, chained, choice

_BLIND_TO_COPIES = ("min", "max", "any_value", "bool_and", "bool_or", "bit_and", "bit_or", "collect_set")
"""Functions with the same result whether or not each value counts once."""


class CallCollector(Protocol):
    """Collects the calls of a group (`frontend.catalyst.groups`)."""

    def argument(self, expression: CatalystExpression) -> Tree:
        """Convert an argument to a tree over the rows that are grouped."""

    def comparable(self, expression: CatalystExpression) -> Tree:
        """The value by which an argument's values are compared."""

    def condition(self, expression: CatalystExpression | None) -> Tree | None:
        """The condition on the rows that an aggregate with this FILTER reads; None: all rows."""

    def call(
        self,
        function: str,
        arguments: Sequence[Tree],
        type: str,
        distinct: bool = False,
        parameters: tuple[str, ...] = (),
    ) -> Tree:
        """Add a call, and return the column of its result."""


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate in a query: the function, FILTER's condition, and the statement for errors."""

    calls: CallCollector
    function: CatalystExpression
    distinct: bool
    condition: Tree | None
    statement: Statement

    @property
    def type(self) -> str:
        """Spark's type of the result."""
        return self.statement.catalyst.type_of(self.function)

    @property
    def name(self) -> str:
        """The name of the function in SQL."""
        return self.statement.catalyst.function_name(self.function)

    def all_rows(self, place: int) -> Tree:
        """An argument, regardless of FILTER."""
        return self.calls.argument(self.function.children[place])

    def argument(self, place: int) -> Tree:
        """An argument where FILTER's condition holds, NULL elsewhere."""
        return self.where(self.all_rows(place))

    def compared(self, place: int) -> Tree:
        """The value by which an argument is compared, regardless of FILTER."""
        return self.calls.comparable(self.function.children[place])

    def where(self, value: Tree, *conditions: Tree) -> Tree:
        """``value`` where the conditions and FILTER's condition hold, NULL elsewhere."""
        needed = [*([] if self.condition is None else [self.condition]), *conditions]
        if not needed:
            return value
        return choice(chained("and", needed), value)

    def call(self, function: str, arguments: Sequence[Tree], type: str, *parameters: str) -> Tree:
        distinct = self.distinct and function not in _BLIND_TO_COPIES
        return self.calls.call(function, arguments, type, distinct, parameters)

    def unsupported(self, construct: str, advice: str = "") -> Unsupported:
        return self.statement.unsupported(construct, self.function, advice)


Result = Callable[[AggregateCall], Tree]
