"""A view's query during conversion: access to Spark's objects behind its plan, and its names in errors."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Protocol, TypeVar

from holdfast.errors import DeclarationError, Unsupported
from holdfast.frontend.catalyst.draws import Draws
from holdfast.frontend.catalyst.tree import CatalystExpression, CatalystOperator
from holdfast.frontend.loop_queries import RecursionLimits
from holdfast.operators.loops.body import LoopLeaf
from holdfast.plan.nodes import Field, Source, UserFunction

Kind = TypeVar("Kind", bound=DeclarationError)


class Catalyst(Protocol):
    """Spark's side of a plan (`spark.analysed_query`): everything that its JSON does not contain."""

    @property
    def has_collations(self) -> bool:
        """Whether the query has a text with a collation."""

    def collation_key(self, collation: str) -> str:
        """The name of a SQL function that maps texts to bytes: equal if the texts are equal by the collation, and in
        its order."""

    def output(self, operator: CatalystOperator) -> list[CatalystExpression]:
        """The output columns of an operator."""

    def type_of(self, expression: CatalystExpression) -> str:
        """The type of an expression, as Spark's catalogString."""

    def position(self, node: CatalystExpression | CatalystOperator) -> tuple[int, int] | None:
        """Line and column of a node in the SQL text, from 1; None if it is not in the text."""

    def origin(self, node: CatalystExpression) -> str:
        """The text that contains a node (the statement's, a view's or a function's) and its place there; empty if there
        is none."""

    def constant(self, expression: CatalystExpression) -> object:
        """The value of an expression that refers to no column: a number, a list of numbers, or another value. None if
        Spark cannot compute it without running a query."""

    def function_name(self, expression: CatalystExpression) -> str:
        """The name of a function in SQL."""

    def is_session(self, attribute: CatalystExpression) -> bool:
        """Whether the column is the result of ``session_window``."""

    def pivot_values(self, expression: CatalystExpression) -> list[CatalystExpression]:
        """The values of a ``PivotFirst``, as literals."""

    def foreign(self, expression: CatalystExpression, holes: list[CatalystExpression]) -> str:
        """The name of a SQL function that computes the expression from the values of ``holes``, which are parts of
        it."""

    def literal(self, expression: CatalystExpression) -> CatalystExpression | None:
        """The literal that Spark's optimiser makes of an expression without columns; None if it makes none. A timestamp
        is in microseconds."""

    def is_deterministic(self, expression: CatalystExpression) -> bool:
        """Whether Spark takes the expression and all its parts for deterministic."""

    def mode(self, expression: CatalystExpression) -> str:
        """How an operation fails: ``ANSI`` (an error), ``TRY`` (NULL) or ``LEGACY``."""

    def is_ansi(self, expression: CatalystExpression) -> bool:
        """Whether every operation in an expression fails as ANSI SQL does; False if that is not certain."""

    def hidden(self, expression: CatalystExpression, name: str) -> str:
        """A parameter that the plan's JSON leaves out."""

    def raised(self, condition: str) -> str:
        """The name of a SQL function without arguments that raises this error of Spark."""

    def function(self, expression: CatalystExpression) -> UserFunction:
        """The Python function that the expression calls."""

    def static(self, operator: CatalystOperator, view: CatalystOperator | None) -> Source:
        """Return a leaf that is not the flow's as a source whose rows never change. ``view``: the user's view that
        contains it."""


class Statement:
    """The query of ``view``. ``subject``: the beginning of errors. ``max_rounds``: the bound of its loops, if it has
    one. ``limits``: for a recursion whose text has none. ``draws``: the numbers of draws, if the query is a piece of a
    declaration."""

    def __init__(
        self,
        view: str,
        catalyst: Catalyst,
        functions: Mapping[str, UserFunction],
        subject: str = "",
        max_rounds: int | None = None,
        limits: RecursionLimits | None = None,
        in_loop: bool = False,
        draws: Draws | None = None,
    ) -> None:
        self.in_loop = in_loop
        """Whether the part that is converted now may be in the body of a loop."""

        self.view, self.catalyst, self.functions = view, catalyst, functions
        self.subject = subject or f"view '{view}'"
        self.max_rounds, self.limits = max_rounds, limits or RecursionLimits()
        self._leaves = itertools.count()
        self.draws = Draws() if draws is None else draws
        self._subqueries = itertools.count()

    def draw(self, call: CatalystExpression, seed: object) -> str:
        """Return the number of a nondeterministic call. ``seed``: the seed or id that Spark gave the call."""
        known = "" if seed is None else f"{call.kind} {seed}"
        return self.draws.number(seed=known, place=self.catalyst.origin(call))

    def loop_leaf(self, fields: tuple[Field, ...]) -> LoopLeaf:
        """Return a leaf that stands for a variable of a loop while the loop is built."""
        return LoopLeaf(f"recursive {next(self._leaves)}", fields)

    def next_subquery(self) -> int:
        return next(self._subqueries)

    def error(
        self,
        kind: type[Kind],
        message: str,
        node: CatalystExpression | CatalystOperator | None = None,
        **fields: object,
    ) -> Kind:
        """Return an error about ``node``, with its place in the text."""
        place = None if node is None else self.catalyst.position(node)
        if place is None:
            return kind(f"{self.subject}: {message}", view=self.view, **fields)
        line, column = place
        return kind(
            f"{self.subject}, line {line}, column {column}: {message}",
            view=self.view,
            line=line,
            column=column,
            **fields,
        )

    def unsupported(
        self, construct: str, node: CatalystExpression | CatalystOperator | None = None, advice: str = ""
    ) -> Unsupported:
        """Return the refusal of a construct that cannot be kept up to date."""
        behind = f": {advice}" if advice else ""
        return self.error(Unsupported, f"{construct} is not supported{behind}", node, construct=construct)
