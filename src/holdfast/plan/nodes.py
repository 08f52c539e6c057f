"""The plan: what a view means, as frozen nodes.

A node describes a collection: a bag of rows with named columns. Plans are values: two plans with the same
structure compare equal, and nothing in them refers to Spark, files or epochs. Column names are unique within a
node; the frontends ensure that. Expressions (`plan.expression`) have the types that Spark gave them, so each node knows
the types of its columns.

Everything that the plan needs to know of an operator is a method of its node: its inputs, its fingerprint, the columns
and conditions that pass it, how its rows are spread, its text. So code in `plan/` never asks which operator a node is,
except for the three defined here, from which plans are built: `Source`, `Linear` and `Union`. Each other operator has
a file in `operators/`, with its node and the code that runs in tasks (docs/adding-an-operator.md).

A `Step` works on a change alone, row by row. A `KeyedNode` needs its trace. Keyed nodes take only plain columns: the
frontends compute key and argument expressions in a `Linear` below. Expressions are deterministic: a nondeterministic
value is drawn by a `Draw`, and then is a column like any other.

The file is long because the classes need each other: pruning any node may put a `Linear` above it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from holdfast.plan.expression import (
    Column,
    Literal,
    Tree,
    conjunction,
    conjuncts,
    is_operation,
    plain,
    readable,
    references,
    renamed,
)
from holdfast.plan.fingerprint import digest, shape
from holdfast.plan.placement import Placement


@dataclass(frozen=True)
class Field:
    """A column: its name, and its Spark type as DDL text (``bigint``, ``array<string>``)."""

    name: str
    type: str


@dataclass(frozen=True)
class Order:
    """A column to sort by."""

    column: str
    descending: bool
    nulls_first: bool

    @property
    def text(self) -> str:
        """The column and its direction, for people."""
        return f"{self.column}{' desc' if self.descending else ''}"


class Node(ABC):
    """The base of all nodes. Nodes are frozen dataclasses."""

    calendar: str = ""
    """What the node assumes of the session's time zone: see `operators.temporal.Temporal`."""

    if TYPE_CHECKING:  # some subclasses have these as fields, others compute them

        @property
        def fields(self) -> tuple[Field, ...]:
            """The columns, with their types."""

        @property
        def inputs(self) -> tuple[Node, ...]:
            """The nodes that this node reads, in order."""

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(each.name for each in self.fields)

    @cached_property
    def types(self) -> dict[str, str]:
        """Column → its type."""
        return {each.name: each.type for each in self.fields}

    def column(self, name: str) -> Column:
        """A reference to a column of these rows."""
        return Column(name, self.types[name])

    def with_inputs(self, inputs: Sequence[Node]) -> Node:
        """The node over other inputs; the node itself if they are the same objects."""
        if all(new is old for new, old in zip(inputs, self.inputs, strict=True)):
            return self
        return self._over(*inputs)

    @abstractmethod
    def _over(self, *inputs: Node) -> Node:
        """The node over other inputs."""

    @abstractmethod
    def meaning(self, *inputs: str) -> str:
        """The fingerprint, given the fingerprints of the inputs (`plan/fingerprint.py`): a `digest` of the operator's
        name and of everything that decides which rows the node holds. Columns are given by position."""

    @abstractmethod
    def placed(self, *inputs: Placement) -> Placement:
        """The placement of its rows, given the placements of its inputs (`plan/placement.py`)."""

    @abstractmethod
    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        """For each input, the columns that the node needs of it to compute the ``wanted`` columns."""

    def pruned(self, wanted: Collection[str], inputs: Sequence[Node]) -> Node:
        """The node with only the ``wanted`` columns, in their old order, and columns that it cannot drop. ``inputs``
        have the columns that the node needs, and may have more."""
        return self.with_inputs(_only_needed(inputs, self.needs(wanted)))

    def pushed(self, condition: Tree) -> tuple[Tree | None, ...] | None:
        """A condition on the node's rows, as one condition per input (None: that input is not filtered).

        The node over inputs filtered in this way must have exactly the rows for which the condition holds. Returns None
        if there are no such conditions."""
        return None

    def guessed_rows(self, *inputs: float) -> float:
        """The estimated number of rows, given the estimates of its inputs (`operators/rewrites/order_joins.py`)."""
        return inputs[0]

    @property
    def shown_order(self) -> tuple[Order, ...]:
        """The order in which a person expects to see the rows."""
        return ()

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns of its input whose values the node compares by content. They cannot be maps."""
        return ()

    @property
    def arrangement(self) -> tuple[int, ...]:
        """The key of the view's log, as column positions: the key by which the rows are already spread, if its columns
        are in the row (then no exchange is needed, and equal rows always meet in one task); else all columns."""
        whole = tuple(range(len(self.columns)))
        mapping: list[int | None] = list(whole)
        node: Node = self
        while isinstance(node, Step):
            passed = node.passed_on
            mapping = [None if index is None else passed[index] for index in mapping]
            node = node.input
        for key in node.parts[-1].spread if isinstance(node, KeyedNode) else ():
            if all(index in mapping for index in key):
                return tuple(mapping.index(index) for index in key)
        return whole


@dataclass(frozen=True)
class OneInput(Node):
    """A node that reads one other node."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def _over(self, *inputs: Node) -> Node:
        return replace(self, input=inputs[0])


@dataclass(frozen=True)
class TwoInputs(Node):
    """A node that reads two other nodes."""

    left: Node
    right: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.left, self.right

    def _over(self, *inputs: Node) -> Node:
        return replace(self, left=inputs[0], right=inputs[1])


# -- steps: they need the change alone --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step(OneInput):
    """An operator that works on a change alone, row by row. By default it appends columns to those of its input."""

    runs_in_spark: ClassVar[bool] = False
    """Whether a Spark query can run the step (`spark/stretches.py`) if its expressions need Spark. If False, tasks
    always run it, and it gives exactly one row per row."""

    multiplies: ClassVar[bool] = False
    """Whether the step may give several rows for one row."""

    @property
    def passed_on(self) -> list[int | None]:
        """For each column, the position of the same column in the input; None if the step computes it."""
        width = len(self.input.columns)
        return [*range(width), *[None] * (len(self.columns) - width)]

    @property
    def expressions(self) -> tuple[Tree, ...]:
        """The expressions that the step evaluates."""
        return ()

    @abstractmethod
    def texts(self) -> list[str]:
        """The step as text, for people."""

    def placed(self, *inputs: Placement) -> Placement:
        return inputs[0]

    def pushed(self, condition: Tree) -> tuple[Tree | None, ...] | None:
        return (condition,) if touches(condition, self.input.columns) else None


@dataclass(frozen=True)
class Named:
    """An output column of a `Linear`: its name and the expression that computes it."""

    name: str
    expression: Tree


_EQUAL, _OTHER = 0.02, 1 / 3
"""The estimated share of rows that a condition keeps: for an equality with a constant, and for any other condition."""


@dataclass(frozen=True)
class Linear(Step):
    """Keep the rows for which ``predicate`` is true, then compute ``outputs`` from each row."""

    predicate: Tree | None
    outputs: tuple[Named, ...]

    runs_in_spark = True

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(output.name, output.expression.type) for output in self.outputs)

    @property
    def passed_on(self) -> list[int | None]:
        below = {name: index for index, name in enumerate(self.input.columns)}
        return [below.get(plain(output.expression) or "") for output in self.outputs]

    @property
    def expressions(self) -> tuple[Tree, ...]:
        computed = tuple(output.expression for output in self.outputs)
        return computed if self.predicate is None else (self.predicate, *computed)

    def texts(self) -> list[str]:
        new = [output for output in self.outputs if plain(output.expression) != output.name]
        computed = [f"{readable(output.expression)} as {output.name}" for output in new]
        found = [] if self.predicate is None else [f"where {readable(self.predicate)}"]
        return [*found, "select " + ", ".join(computed)] if computed else found

    def meaning(self, *inputs: str) -> str:
        columns = self.input.columns
        if self.predicate is None and tuple(plain(output.expression) for output in self.outputs) == columns:
            return inputs[0]
        indices = {name: index for index, name in enumerate(columns)}
        conditions = tuple(sorted({repr(shape(part, indices)) for part in conjuncts(self.predicate)}))
        return digest("linear", inputs[0], conditions, tuple(shape(each.expression, indices) for each in self.outputs))

    def placed(self, *inputs: Placement) -> Placement:
        names: dict[str, list[str]] = {}
        for output in self.outputs:
            if (inner := plain(output.expression)) is not None:
                names.setdefault(inner, []).append(output.name)
        # The first name of a column is enough: the frontends rarely output one column under two names.
        keys = {tuple(names[name][0] for name in key) for key in inputs[0].spread if all(name in names for name in key)}
        return Placement(inputs[0].stage, frozenset(keys))

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        trees = [output.expression for output in self.outputs if output.name in wanted]
        return (set(references(self.predicate, *trees)),)

    def pruned(self, wanted: Collection[str], inputs: Sequence[Node]) -> Node:
        outputs = tuple(output for output in self.outputs if output.name in wanted)
        if inputs[0] is self.input and len(outputs) == len(self.outputs):
            return self
        return Linear(inputs[0], self.predicate, outputs)

    def pushed(self, condition: Tree) -> tuple[Tree | None, ...] | None:
        return None  # a filter above a Linear is fused with it instead

    def guessed_rows(self, *inputs: float) -> float:
        share = 1.0
        for part in conjuncts(self.predicate):
            equal = is_operation(part, "=") and any(isinstance(side, Literal) for side in part.parts)
            share *= _EQUAL if equal else _OTHER
        return max(1.0, inputs[0] * share)

    @property
    def shown_order(self) -> tuple[Order, ...]:
        names = {plain(output.expression): output.name for output in self.outputs}
        seen: list[Order] = []
        for item in self.input.shown_order:
            if item.column not in names:
                break
            seen.append(Order(names[item.column], item.descending, item.nulls_first))
        return tuple(seen)


# -- keyed nodes: they need their trace -------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeyedPart:
    """A keyed operator of a dataflow, as the plan needs it: its keys, and its texts."""

    kind: str
    """The operator's kind in logs and status. It is part of no layer name and no fingerprint."""

    keys: tuple[tuple[int, ...], ...]
    """For each port, the positions of its key in the rows that arrive there. Rows of one key meet in one task."""

    spread: tuple[tuple[int, ...], ...]
    """The keys by which its output is spread: tuples of output positions whose hash decides the partition."""

    title: str
    """What the operator does, for people."""

    takes: tuple[tuple[int, ...], ...] = ()
    """For each port, the positions of the columns that the operator takes, in its order. Empty: all columns."""

    cost: str = "of the change"
    """What its work in an epoch is proportional to, for people."""

    colour: str = "#f0f2f4"
    suffix: str = ""
    """The end of its operator_id, after the node's fingerprint. It tells the parts of one node apart."""

    timed: bool = False
    """Whether the operator reads the clock of the lineage, and so may change its output when no row arrives."""

    ticks: bool = False
    """Whether the operator runs in every epoch, also if no row arrives. A ``timed`` operator always does."""

    draws: tuple[str, ...] = ()
    """The nondeterministic functions whose values the operator draws."""

    inside: tuple[str, ...] = ()
    """Only for a loop: what it does in each round, as lines of text."""

    keeps: bool = False
    """Whether its trace ``rows`` holds the node's rows in the layout of a log: then a source needs no log operator."""


class KeyedNode(Node):
    """A node that needs its trace. It becomes one keyed operator, or a chain of several."""

    @property
    @abstractmethod
    def parts(self) -> tuple[KeyedPart, ...]:
        """Its operators. The first reads the inputs, one port each; each other reads the one before; the last gives the
        node's rows."""

    is_bounded: ClassVar[bool] = False
    """Whether the node has bounds that are not part of its meaning."""

    def bounded_with(self, other: KeyedNode) -> KeyedNode:
        """This node with also the bounds of ``other``, the node of another view with the same meaning."""
        return self

    def placed(self, *inputs: Placement) -> Placement:
        (part,) = self.parts
        stages = []
        for below, node, key in zip(inputs, self.inputs, part.keys, strict=True):
            stages.append(below.needed(tuple(node.columns[index] for index in key)))
        spread = frozenset(tuple(self.columns[index] for index in key) for key in part.spread)
        return Placement(max(stages), spread)


# -- sources and unions -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source(Node):
    """A collection that comes from outside: a connector, or rows pushed by code."""

    name: str
    fields: tuple[Field, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    def _over(self, *inputs: Node) -> Node:
        return self

    def meaning(self, *inputs: str) -> str:
        return digest("source", self.name, tuple((field.name, field.type) for field in self.fields))

    def placed(self, *inputs: Placement) -> Placement:
        return Placement(0)

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        return ()

    def guessed_rows(self, *inputs: float) -> float:
        return float(10 ** (1 + len(self.fields) / 4))


@dataclass(frozen=True)
class Union(Node):
    """All rows of all inputs (UNION ALL). Columns are matched by position; the names are the first input's."""

    inputs: tuple[Node, ...]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.inputs[0].fields

    def _over(self, *inputs: Node) -> Node:
        return Union(inputs)

    def meaning(self, *inputs: str) -> str:
        # A bag has no order, so the order of the inputs does not matter.
        return digest("union", tuple(sorted(inputs)))

    def placed(self, *inputs: Placement) -> Placement:
        return Placement(max(each.stage for each in inputs))

    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        indices = [index for index, name in enumerate(self.columns) if name in wanted]
        return tuple({each.columns[index] for index in indices} for each in self.inputs)

    def pushed(self, condition: Tree) -> tuple[Tree | None, ...] | None:
        return tuple(by_position(condition, self, each) for each in self.inputs)

    def guessed_rows(self, *inputs: float) -> float:
        return sum(inputs)


# -- users' functions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """A user's deterministic function: its name in SQL, the Spark type it returns, its style and its code.

    ``style`` tells how it is called: ``plain`` with the values of one row, ``pandas`` with Series, ``arrow`` with
    Arrow arrays, ``pandas iterator`` and ``arrow iterator`` with an iterator of Series or arrays.
    """

    name: str
    returns: str
    meaning: str
    """A hash of its body and style. It is part of fingerprints: a view with a changed body is another view."""

    style: str
    pickled: bytes = field(repr=False)
    """The pickled function, for the tasks."""


@dataclass(frozen=True)
class Outside:
    """A user's nondeterministic function, whose answers are kept: its name in SQL, the Spark type it returns, its
    code."""

    name: str
    returns: str
    meaning: str
    """A hash of its body. It is part of fingerprints: a view with a changed body is another view."""

    pickled: bytes = field(repr=False)
    """The pickled function, for the tasks."""


UserFunction = Outside | Function


# -- functions that build nodes ---------------------------------------------------------------------------------------


def same(node: Node) -> tuple[Named, ...]:
    """The columns of ``node``, unchanged, as outputs of a `Linear` above it."""
    return tuple(Named(name, node.column(name)) for name in node.columns)


def projection(node: Node, names: Sequence[str], predicate: Tree | None = None) -> Linear:
    """A `Linear` with the columns ``names`` of ``node``, of the rows for which ``predicate`` holds."""
    return Linear(node, predicate, tuple(Named(name, node.column(name)) for name in names))


def filtered(node: Node, conditions: Sequence[Tree]) -> Node:
    """The rows of ``node`` for which all conditions hold."""
    return projection(node, node.columns, conjunction(list(conditions))) if conditions else node


def only(node: Node, wanted: Collection[str]) -> Node:
    """``node`` with only the wanted columns, in their old order."""
    names = tuple(name for name in node.columns if name in wanted)
    return node if node.columns == names else projection(node, names)


def _only_needed(nodes: Sequence[Node], needs: Sequence[Collection[str]]) -> tuple[Node, ...]:
    return tuple(only(node, wanted) for node, wanted in zip(nodes, needs, strict=True))


def touches(condition: Tree, columns: Collection[str]) -> bool:
    """Whether the condition reads at least one column, and only columns among these."""
    names = references(condition)
    return bool(names) and set(names) <= set(columns)


def by_position(condition: Tree, above: Node, below: Node) -> Tree:
    """A condition on ``above`` as a condition on ``below``, which has the same columns by position."""
    return renamed(condition, dict(zip(above.columns, below.columns, strict=True)))
