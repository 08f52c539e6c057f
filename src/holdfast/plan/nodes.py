"""The plan: what a view means, as frozen nodes.

A node describes a collection: a bag of rows with named columns. Plans are values: two plans with the same
meaning compare equal, and nothing in them knows of Spark, files or epochs. Column names are unique within a
node; the frontends see to that. Expressions (`plan.expression`) are typed, and so each node knows the types of its
columns: those that Spark gave them.

Linear nodes (`Linear`, `Generate`, `Apply`, `Union`) work on a change alone. Keyed nodes (`Join`, `SetOperation`,
`Aggregate`, `TopK`, `Window`, `Draw`, `Temporal`) need their trace. Keyed nodes take plain columns only: the frontends
compute key and argument expressions in a `Linear` below. Expressions are deterministic: whatever is not is drawn by a
`Draw`, and then is a column like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from holdfast.plan.expression import Column, Tree, plain


@dataclass(frozen=True)
class Field:
    """A column: its name, and its Spark type as DDL text (``bigint``, ``array<string>``)."""

    name: str
    type: str


class Rows:
    """What all nodes have."""

    if TYPE_CHECKING:  # a field of some, computed from the inputs by others

        @property
        def fields(self) -> tuple[Field, ...]:
            """The columns, with their types."""

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


@dataclass(frozen=True)
class Source(Rows):
    """A collection that comes from outside: a connector, or rows pushed by code."""

    name: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Named:
    """An output column of a `Linear`: its name and the expression that computes it."""

    name: str
    expression: Tree


@dataclass(frozen=True)
class Linear(Rows):
    """Keep the rows for which ``predicate`` is true, then compute ``outputs`` from each."""

    input: Node
    predicate: Tree | None
    outputs: tuple[Named, ...]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return tuple(Field(output.name, output.expression.type) for output in self.outputs)


@dataclass(frozen=True)
class Generate(Rows):
    """Each row of the input with each of the rows that a generator makes of it (LATERAL VIEW, ``explode`` in a select
    list).

    ``function`` is the generator's name, without ``_outer``: ``outer`` says whether a row of which nothing is made
    stays, with NULLs. Columns: the input's, then those that are ``made``.
    """

    input: Node
    function: str
    arguments: tuple[Tree, ...]
    made: tuple[Field, ...]
    outer: bool = False

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields + self.made


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
class Applied:
    """A column of an `Apply`: its name, the function that computes it, and the function's argument columns."""

    name: str
    function: Function
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Apply(Rows):
    """Each row of the input with what functions of the user's make of it. Columns: the input's, then the calls'."""

    input: Node
    calls: tuple[Applied, ...]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields + tuple(Field(call.name, call.function.returns) for call in self.calls)


@dataclass(frozen=True)
class Union(Rows):
    """All rows of all inputs (UNION ALL). Columns go by position; the names are the first input's."""

    inputs: tuple[Node, ...]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.inputs[0].fields


@dataclass(frozen=True)
class SetOperation(Rows):
    """INTERSECT or EXCEPT of two bags: ``kind`` is ``intersect`` or ``except``, ``all`` keeps copies.

    Columns go by position; the names are the left input's. NULLs are equal, as are NaNs, and -0.0 and 0.0.
    """

    left: Node
    right: Node
    kind: str
    all: bool

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.left.fields


@dataclass(frozen=True)
class Join(Rows):
    """Pairs of rows whose keys are equal. With no keys all rows match. Further conditions sit in a `Linear` above.

    ``how`` says what is done with rows that match nothing: ``inner`` drops them; ``left`` keeps those of the left side,
    NULLs in the place of the right one; ``full`` keeps those of both sides. ``semi`` gives the left rows that match
    something, ``anti`` those that match nothing; these have the columns of the left side alone.

    A NULL in a key matches nothing, except in the keys that ``null_safe`` marks (``<=>``), where it matches NULL.
    ``null_safe`` has a flag per key, or is empty if none is marked.
    """

    left: Node
    right: Node
    left_keys: tuple[str, ...]
    right_keys: tuple[str, ...]
    how: Literal["inner", "left", "full", "semi", "anti"] = "inner"
    null_safe: tuple[bool, ...] = ()

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.left.fields if self.how in ("semi", "anti") else self.left.fields + self.right.fields


@dataclass(frozen=True)
class Call:
    """One aggregate of an `Aggregate`: output column, function, argument columns (none for ``count(*)``), type.

    ``function`` is one of ``count, sum, avg, min, max, any_value, stddev_samp, stddev_pop, var_samp, var_pop, count_if,
    bool_and, bool_or, skewness, kurtosis, covar_pop, covar_samp, bit_and, bit_or, bit_xor, collect_list, collect_set,
    mode, percentile, percentile_disc``. ``distinct``: each value counts once. ``any_value`` stands for first, last and
    any_value alike: the least non-null value, so that the choice is the same in every replay; for the same reason lists
    are sorted.
    ``parameters`` are constants: a percentage, and ``desc`` if it counts from the greatest value; ``greatest`` for the
    mode that is the greatest of those that tie; ``try`` for a sum that is NULL where it does not fit its type.
    """

    name: str
    function: str
    arguments: tuple[str, ...]
    type: str
    distinct: bool = False
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True)
class Aggregate(Rows):
    """One row per distinct key with the aggregates of its rows; with no keys, one row always.

    With keys and no calls it is DISTINCT. NULL keys group together; NaN equals NaN and -0.0 equals 0.0.
    Columns: the keys, then the calls.
    """

    input: Node
    keys: tuple[str, ...]
    calls: tuple[Call, ...]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        keys = tuple(Field(key, self.input.types[key]) for key in self.keys)
        return keys + tuple(Field(call.name, call.type) for call in self.calls)


@dataclass(frozen=True)
class Order:
    """A column to sort by."""

    column: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class TopK(Rows):
    """The rows at places ``offset`` to ``offset + limit`` of the order. Ties are broken by the whole row.

    With no ``order`` it is a bare LIMIT: the order of the whole row alone.
    """

    input: Node
    order: tuple[Order, ...]
    limit: int
    offset: int = 0

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields


@dataclass(frozen=True)
class Frame:
    """The rows around a row that a window function sees, from ``start`` to ``end``: None is the partition's own end.

    By ``rows`` they are places relative to the row (-1 is the one before it); otherwise they are 0, and mean the first
    and the last of the row's peers, those that the order does not tell apart.
    """

    rows: bool
    start: int | None
    end: int | None


@dataclass(frozen=True)
class Reach:
    """An end of a frame by value (``RANGE 5 PRECEDING``): the column that holds the outermost value of the order's one
    column that is in the row's frame, and how the user put it."""

    column: str
    text: str


@dataclass(frozen=True)
class WindowCall:
    """One function of a `Window`: output column, function, type, argument columns (``lag`` and ``lead`` may have a
    default).

    ``function`` is a ranking (``row_number, rank, dense_rank, percent_rank, cume_dist, ntile``), a neighbour (``lag,
    lead``), a value of the frame (``first_value, last_value, nth_value``) or an aggregate of it. ``number`` is how many
    buckets, how far, or which; ``frame`` is None where the function has none. ``reach`` says where a frame that is not
    by ``rows`` starts and ends instead of at the row's peers.
    """

    name: str
    function: str
    type: str
    arguments: tuple[str, ...] = ()
    number: int = 1
    frame: Frame | None = None
    ignore_nulls: bool = False
    reach: tuple[Reach | None, Reach | None] = (None, None)

    @property
    def reads(self) -> tuple[str, ...]:
        """All columns that it reads, besides the window's own."""
        return self.arguments + tuple(each.column for each in self.reach if each is not None)


@dataclass(frozen=True)
class First:
    """Only the rows for which a call, a ``row_number`` or a ``rank``, is at most ``count``."""

    call: str
    count: int


@dataclass(frozen=True)
class Window(Rows):
    """Each row of the input with values computed from the rows of its partition, in an order.

    Rows are of one partition if they agree in the columns ``partition``, as groups do. Ties of the order are broken by
    the whole row, and copies of a row stand next to each other. Columns: the input's, then the calls'.

    With ``first`` it gives the rows in front alone; then all calls are ``row_number``, ``rank`` or ``dense_rank``.
    """

    input: Node
    partition: tuple[str, ...]
    order: tuple[Order, ...]
    calls: tuple[WindowCall, ...]
    first: First | None = None

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields + tuple(Field(call.name, call.type) for call in self.calls)


@dataclass(frozen=True)
class Outside:
    """A user's function whose answers are kept: its name in SQL, what it returns (a Spark type), and its code."""

    name: str
    returns: str
    meaning: str
    """A hash of its body. It goes into fingerprints: a changed body is a changed view."""

    pickled: bytes = field(repr=False)
    """The function itself, for the tasks."""


@dataclass(frozen=True)
class Drawn:
    """A column of a `Draw`: its name, the function that is drawn from, argument columns and Spark type.

    ``function`` is ``clock``, ``rand``, ``randn`` or ``uuid``, or ``udf:<name>`` for the user's function ``outside``.
    ``salt`` keeps draws of one function apart: the seed that the user gave, or which call of the query it is.
    """

    name: str
    function: str
    arguments: tuple[str, ...]
    type: str
    salt: str = ""
    outside: Outside | None = None


@dataclass(frozen=True)
class Draw(Rows):
    """Each row of the input with values that were drawn when it came, and stay with it until it goes.

    The one nondeterministic node: what it draws is a function of the row and of the epoch's lineage. Columns: the
    input's, then the draws'.
    """

    input: Node
    draws: tuple[Drawn, ...]

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields + tuple(Field(draw.name, draw.type) for draw in self.draws)


@dataclass(frozen=True)
class Temporal(Rows):
    """Each row of the input while its time is: ``start`` and ``end`` are columns of type timestamp, and a row is there
    as of an epoch if start ≤ clock < end. NULL, and no column, is always and for ever.

    The clock is that of the epoch's lineage. Columns: the input's.
    """

    input: Node
    start: str | None
    end: str | None
    calendar: str = ""
    """What the moments are computed by assumes of the session's time zone: nothing, that no date comes twice
    (``days``), or that all days have 24 hours (``fixed``)."""

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.input.fields

    @property
    def moments(self) -> tuple[str, ...]:
        """The columns that say when."""
        return tuple(name for name in (self.start, self.end) if name is not None)


UserFunction = Outside | Function
Step = Linear | Generate | Apply
"""What works on a change alone, row by row."""

Node = Source | Linear | Generate | Apply | Union | SetOperation | Join | Aggregate | TopK | Window | Draw | Temporal


def shown_order(node: Node) -> tuple[Order, ...]:
    """The order in which a person expects to see the rows: a top-k's own, as far as its columns are to be seen."""
    if isinstance(node, TopK):
        return node.order
    if isinstance(node, (Draw, Apply, Temporal)):
        return shown_order(node.input)
    if not isinstance(node, Linear):
        return ()
    names = {plain(output.expression): output.name for output in node.outputs}
    seen: list[Order] = []
    for item in shown_order(node.input):
        if item.column not in names:
            break
        seen.append(Order(names[item.column], item.descending, item.nulls_first))
    return tuple(seen)


def same(node: Node) -> tuple[Named, ...]:
    """The columns of ``node`` as they are."""
    return tuple(Named(name, node.column(name)) for name in node.columns)


def inputs(node: Node) -> tuple[Node, ...]:
    """The nodes that ``node`` reads, in order."""
    match node:
        case Source():
            return ()
        case Linear(input=child) | Generate(input=child) | Apply(input=child):
            return (child,)
        case Aggregate(input=child) | TopK(input=child) | Window(input=child) | Draw(input=child):
            return (child,)
        case Temporal(input=child):
            return (child,)
        case Union(inputs=children):
            return children
        case Join(left=left, right=right) | SetOperation(left=left, right=right):
            return (left, right)
