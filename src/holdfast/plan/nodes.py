"""The plan: what a view means, as frozen nodes.

A node describes a collection: a bag of rows with named columns. Plans are values: two plans with the same
meaning compare equal, and nothing in them knows of Spark, files or epochs. Column names are unique within a
node; the frontends see to that. Expressions (`plan.expression`) are typed, and so each node knows the types of its
columns: those that Spark gave them.

Everything that the plan needs to know of an operator is a method of its node: what it reads, what its fingerprint is
made of, which columns and conditions pass it, where its rows lie, how it is shown. So nothing in `plan/` asks which
operator a node is, apart from the three below, of which plans are put together: `Source`, `Linear` and `Union`. All
others have a file each in `operators/`, with what runs in the tasks beside the node (docs/adding-an-operator.md).

A `Step` works on a change alone, row by row. A `KeyedNode` needs its trace. Keyed nodes take plain columns only: the
frontends compute key and argument expressions in a `Linear` below. Expressions are deterministic: whatever is not is
drawn by a `Draw`, and then is a column like any other.

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
    """What all nodes have. Nodes are frozen dataclasses."""

    calendar: str = ""
    """What is assumed of the session's time zone: see `operators.temporal.Temporal`."""

    if TYPE_CHECKING:  # fields of some, computed by others

        @property
        def fields(self) -> tuple[Field, ...]:
            """The columns, with their types."""

        @property
        def inputs(self) -> tuple[Node, ...]:
            """The nodes that it reads, in order."""

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
        """The fingerprint, given those of the inputs (`plan/fingerprint.py`): a `digest` of a name of its own and of
        all that decides which rows it holds. Columns go in by position."""

    @abstractmethod
    def placed(self, *inputs: Placement) -> Placement:
        """Where its rows lie, given where those of its inputs do (`plan/placement.py`)."""

    @abstractmethod
    def needs(self, wanted: Collection[str]) -> tuple[set[str], ...]:
        """For each input, the columns that are needed of it if these columns of the node are wanted."""

    def pruned(self, wanted: Collection[str], inputs: Sequence[Node]) -> Node:
        """The node with no more than the columns that are ``wanted``, in their old order, as far as it can do without
        the others. ``inputs`` have the columns that it needs, and maybe more."""
        return self.with_inputs(_only_needed(inputs, self.needs(wanted)))

    def pushed(self, condition: Tree) -> tuple[Tree | None, ...] | None:
        """A condition on the node's rows as conditions on those of its inputs (None: nothing is asked of an input). The
        node over the inputs that are filtered so must have exactly the rows for which the condition holds. None: it
        cannot be said so."""
        return None

    def guessed_rows(self, *inputs: float) -> float:
        """How many rows it is taken to have, given how many its inputs are (`operators/rewrites/order_joins.py`)."""
        return inputs[0]

    @property
    def shown_order(self) -> tuple[Order, ...]:
        """The order in which a person expects to see the rows."""
        return ()

    @property
    def compared(self) -> tuple[str, ...]:
        """The columns of its input whose values must be equal or not, content for content: maps are not."""
        return ()

    @property
    def arrangement(self) -> tuple[int, ...]:
        """By which columns its rows are kept: the key by which they are spread already, if that is a function of the
        row (then no exchange is needed, and equal rows always meet); else the whole row."""
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
    """A node that reads one other."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def _over(self, *inputs: Node) -> Node:
        return replace(self, input=inputs[0])


@dataclass(frozen=True)
class TwoInputs(Node):
    """A node that reads two others."""

    left: Node
    right: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.left, self.right

    def _over(self, *inputs: Node) -> Node:
        return replace(self, left=inputs[0], right=inputs[1])


# -- what works on a change alone -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step(OneInput):
    """What works on a change alone, row by row. Unless it says otherwise it adds columns behind those of its input."""

    runs_in_spark: ClassVar[bool] = False
    """Whether a query of Spark's can run it (`spark/stretches.py`), should its expressions need that. If not the tasks
    always do, and it gives one row for each row."""

    multiplies: ClassVar[bool] = False
    """Whether it may give several rows for a row."""

    @property
    def passed_on(self) -> list[int | None]:
        """For each column, which of the input's it is; None if the step makes it."""
        width = len(self.input.columns)
        return [*range(width), *[None] * (len(self.columns) - width)]

    @property
    def expressions(self) -> tuple[Tree, ...]:
        """The expressions that it evaluates."""
        return ()

    @abstractmethod
    def texts(self) -> list[str]:
        """What it does, for people."""

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
"""The share of the rows that a condition is taken to keep: an equality with a constant, and any other."""


@dataclass(frozen=True)
class Linear(Step):
    """Keep the rows for which ``predicate`` is true, then compute ``outputs`` from each."""

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
        # One name for a column is enough: the frontends do not name a column twice without need.
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
        return None  # two that follow each other are fused

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


# -- what needs its trace ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeyedPart:
    """A keyed operator of a dataflow, as the plan sees it: how it is keyed, and how it is shown."""

    kind: str
    """What it is called in logs and status. It goes into no name of a layer and no fingerprint."""

    keys: tuple[tuple[int, ...], ...]
    """For each port, the positions of its key in what arrives there. Rows of one key meet in one task."""

    spread: tuple[tuple[int, ...], ...]
    """The ways in which its output is spread: tuples of output positions whose hash decides the partition."""

    title: str
    """What it does, for people."""

    takes: tuple[tuple[int, ...], ...] = ()
    """For each port, the columns that it takes of what arrives, in the order in which it wants them. Empty: all."""

    cost: str = "of the change"
    """What its work in an epoch is proportional to."""

    colour: str = "#f0f2f4"
    suffix: str = ""
    """What its id has behind the node's fingerprint, where a node has several parts."""

    timed: bool = False
    """Whether it looks at the clock of the lineage, and so may have something to say when nothing arrives."""

    ticks: bool = False
    """Whether it runs in every epoch, also if nothing arrives. What is ``timed`` does so in any case."""

    draws: tuple[str, ...] = ()
    """The functions whose values it draws, and which are not functions of its input."""

    inside: tuple[str, ...] = ()
    """Of a loop: what it does in each round, as lines of text."""

    keeps: bool = False
    """Whether its trace ``rows`` holds the node's rows, laid out as a log's: then a source needs no log behind it."""


class KeyedNode(Node):
    """What needs its trace: it becomes a keyed operator, or several, each of which reads the one before."""

    @property
    @abstractmethod
    def parts(self) -> tuple[KeyedPart, ...]:
        """Its operators. The first reads the inputs, a port each; the last gives the node's rows."""

    is_bounded: ClassVar[bool] = False
    """Whether it has bounds that are no part of its meaning."""

    def bounded_with(self, other: KeyedNode) -> KeyedNode:
        """This node, of several views that mean the same by it, with the bounds of another one of them."""
        return self

    def placed(self, *inputs: Placement) -> Placement:
        (part,) = self.parts
        stages = []
        for below, node, key in zip(inputs, self.inputs, part.keys, strict=True):
            stages.append(below.needed(tuple(node.columns[index] for index in key)))
        spread = frozenset(tuple(self.columns[index] for index in key) for key in part.spread)
        return Placement(max(stages), spread)


# -- where rows come from ---------------------------------------------------------------------------------------------


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
    """All rows of all inputs (UNION ALL). Columns go by position; the names are the first input's."""

    inputs: tuple[Node, ...]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.inputs[0].fields

    def _over(self, *inputs: Node) -> Node:
        return Union(inputs)

    def meaning(self, *inputs: str) -> str:
        # A bag has no order, so neither have the inputs.
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


# -- functions of the user's ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """A user's deterministic function: its name in SQL, what it returns (a Spark type), how it is called, its code.

    ``style`` says what it is called with: ``plain`` with the values of one row, ``pandas`` with Series, ``arrow`` with
    Arrow arrays, ``pandas iterator`` and ``arrow iterator`` with an iterator of them.
    """

    name: str
    returns: str
    meaning: str
    """A hash of its body and style. It goes into fingerprints: a changed body is a changed view."""

    style: str
    pickled: bytes = field(repr=False)
    """The function itself, for the tasks."""


@dataclass(frozen=True)
class Outside:
    """A user's function whose answers are kept: its name in SQL, what it returns (a Spark type), and its code."""

    name: str
    returns: str
    meaning: str
    """A hash of its body. It goes into fingerprints: a changed body is a changed view."""

    pickled: bytes = field(repr=False)
    """The function itself, for the tasks."""


UserFunction = Outside | Function


# -- for those who write nodes ----------------------------------------------------------------------------------------


def same(node: Node) -> tuple[Named, ...]:
    """The columns of ``node`` as they are."""
    return tuple(Named(name, node.column(name)) for name in node.columns)


def projection(node: Node, names: Sequence[str], predicate: Tree | None = None) -> Linear:
    """The columns ``names`` of ``node``."""
    return Linear(node, predicate, tuple(Named(name, node.column(name)) for name in names))


def filtered(node: Node, conditions: Sequence[Tree]) -> Node:
    """The rows of ``node`` for which all conditions hold."""
    return projection(node, node.columns, conjunction(list(conditions))) if conditions else node


def only(node: Node, wanted: Collection[str]) -> Node:
    """``node`` without the columns that are not wanted."""
    names = tuple(name for name in node.columns if name in wanted)
    return node if node.columns == names else projection(node, names)


def _only_needed(nodes: Sequence[Node], needs: Sequence[Collection[str]]) -> tuple[Node, ...]:
    return tuple(only(node, wanted) for node, wanted in zip(nodes, needs, strict=True))


def touches(condition: Tree, columns: Collection[str]) -> bool:
    """Does the condition read some of these columns, and no others?"""
    names = references(condition)
    return bool(names) and set(names) <= set(columns)


def by_position(condition: Tree, above: Node, below: Node) -> Tree:
    """A condition on ``above`` as one on ``below``, whose columns are the same by position."""
    return renamed(condition, dict(zip(above.columns, below.columns, strict=True)))
