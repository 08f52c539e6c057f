"""Types: Spark's own analysis of every node of a plan, so that a view means what Spark says it means.

Nothing is run. Each node is put to Spark as a query over typed NULLs; Spark answers with the types of the result, or
refuses, and then the refusal is the user's error, with the view named. Where Spark would widen types by itself (the two
sides of a join's equality, the branches of a set operation) the casts are put into the plan, so that a key's hash is
taken over one type on both sides.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from holdfast.errors import SchemaError, SqlError, TypeMismatch, Unsupported
from holdfast.plan.nodes import (
    Aggregate,
    Apply,
    Call,
    Draw,
    Field,
    Generate,
    Join,
    Linear,
    Named,
    Node,
    Reach,
    SetOperation,
    Source,
    Temporal,
    TopK,
    Union,
    Window,
    WindowCall,
)
from holdfast.plan.types import arrow_type
from holdfast.plan.windows import NEIGHBOURS, over_text
from holdfast.spark.foreign import known_to
from holdfast.spark.known_types import call_type, expression_type
from holdfast.spark.types import NOTHING, doubled_field, fields_of, null_row, quoted
from holdfast.spark.zones import keeps_dates, keeps_days

_MOMENTS = {"timestamp", "timestamp_ntz", "date"}
"""Types of what can be a moment."""

_REACHED = {"tinyint", "smallint", "int", "bigint", "double", "date", "timestamp", "timestamp_ntz"}
"""Types of an order whose values a frame can reach for."""

_NO_KEY = re.compile(r"\bmap<|\bvariant\b")
"""Types that hold what Spark compares with nothing."""


class Analyst:
    """Types plans. It remembers every node it has seen."""

    def __init__(self, spark: SparkSession) -> None:
        self.session = spark
        self._settled: dict[Node, Node] = {}
        self.types: dict[Node, tuple[Field, ...]] = {}
        """The fields of each settled node."""

    def settle(self, view: str, node: Node) -> Node:
        """The same plan with all types known (in ``types``) and all casts explicit."""
        if node not in self._settled:
            settled, fields = self._settle(view, node)
            _check_kept(view, settled, fields)
            self._settled[node] = self._settled[settled] = settled
            self.types[settled] = fields
        return self._settled[node]

    def _settle(self, view: str, node: Node) -> tuple[Node, tuple[Field, ...]]:
        match node:
            case Source():
                return node, node.fields
            case Linear():
                linear = replace(node, input=self.settle(view, node.input))
                return linear, self._linear_types(view, linear)
            case Generate():
                generate = replace(node, input=self.settle(view, node.input))
                return generate, self._generate_types(view, generate)
            case Apply():
                apply = replace(node, input=self.settle(view, node.input))
                made = tuple(Field(call.name, call.function.returns) for call in apply.calls)
                return apply, self.types[apply.input] + made
            case Union():
                return self._settle_union(view, node)
            case SetOperation():
                return self._settle_set(view, node)
            case Join():
                return self._settle_join(view, node)
            case Aggregate():
                aggregate = replace(node, input=self.settle(view, node.input))
                self._check_maps(view, aggregate)
                known = {field.name: field.type for field in self.types[aggregate.input]}
                kinds = [call_type(each.function, [known[one] for one in each.arguments]) for each in aggregate.calls]
                if (found := _fields([call.name for call in aggregate.calls], kinds)) is not None:
                    return aggregate, tuple(Field(key, known[key]) for key in aggregate.keys) + found
                keys = [quoted(key) for key in aggregate.keys]
                columns = keys + [f"{_call_text(call)} AS {quoted(call.name)}" for call in aggregate.calls]
                group = f" GROUP BY {', '.join(keys)}" if keys else ""
                query = f"SELECT {', '.join(columns)} FROM ({null_row(self.types[aggregate.input])}){group}"
                return aggregate, self._ask(view, query)
            case TopK():
                top = replace(node, input=self.settle(view, node.input))
                return top, self.types[top.input]
            case Window():
                return self._settle_window(view, node)
            case Draw():
                draw = replace(node, input=self.settle(view, node.input))
                return draw, self.types[draw.input] + tuple(Field(each.name, each.type) for each in draw.draws)
            case Temporal():
                return self._settle_temporal(view, node)

    def _linear_types(self, view: str, node: Linear) -> tuple[Field, ...]:
        known = {field.name: field.type for field in self.types[node.input]}
        kinds = [expression_type(output.sql, known) for output in node.outputs]
        if (found := _fields([output.name for output in node.outputs], kinds)) is not None:
            return found
        where = f" WHERE {node.predicate}" if node.predicate else ""
        columns = ", ".join(f"{output.sql} AS {quoted(output.name)}" for output in node.outputs)
        query = f"SELECT {columns or NOTHING} FROM ({null_row(self.types[node.input])}){where}"
        return self._ask(view, query) if columns else self._ask(view, query)[1:]

    def _generate_types(self, view: str, node: Generate) -> tuple[Field, ...]:
        known = self.types[node.input]
        if node.generator.startswith("variant_explode("):
            argument = node.generator.removeprefix("variant_explode(").removesuffix(")")
            self._ask(view, f"SELECT schema_of_variant({argument}) AS s FROM ({null_row(known)})")
            kinds = ("int", "string", "variant")
            return known + tuple(map(Field, node.names, kinds))
        names = ", ".join(map(quoted, node.names))
        query = f"SELECT * FROM ({null_row(known)}) LATERAL VIEW OUTER {node.generator} `_generated` AS {names}"
        return known + self._ask(view, query)[-len(node.names) :]

    def _settle_union(self, view: str, node: Union) -> tuple[Node, tuple[Field, ...]]:
        children = [self.settle(view, child) for child in node.inputs]
        if len({tuple(field.type for field in self.types[child]) for child in children}) == 1:
            return Union(tuple(children)), self.types[children[0]]
        fields = self._ask(view, " UNION ALL ".join(f"({null_row(self.types[child])})" for child in children))
        kinds = [field.type for field in fields]
        return Union(tuple(self._cast(view, child, kinds) for child in children)), fields

    def _settle_set(self, view: str, node: SetOperation) -> tuple[Node, tuple[Field, ...]]:
        left, right = self.settle(view, node.left), self.settle(view, node.right)
        if [field.type for field in self.types[left]] == [field.type for field in self.types[right]]:
            return replace(node, left=left, right=right), self.types[left]
        word = node.kind.upper() + (" ALL" if node.all else "")
        fields = self._ask(view, f"({null_row(self.types[left])}) {word} ({null_row(self.types[right])})")
        kinds = [field.type for field in fields]
        return replace(node, left=self._cast(view, left, kinds), right=self._cast(view, right, kinds)), fields

    def _settle_join(self, view: str, node: Join) -> tuple[Node, tuple[Field, ...]]:
        left, right = self.settle(view, node.left), self.settle(view, node.right)
        signs = ["<=>" if safe else "=" for safe in node.null_safe or [False] * len(node.left_keys)]
        widened = []
        for left_key, right_key, sign in zip(node.left_keys, node.right_keys, signs, strict=True):
            kinds = [
                next(field.type for field in self.types[side] if field.name == key)
                for side, key in ((left, left_key), (right, right_key))
            ]
            # A join that goes by whole rows (`frontend.joins`) is our own; users' keys are Spark's to judge.
            whole = node.left_keys == node.left.columns and len(node.null_safe) == len(node.left_keys)
            if kinds[0] == kinds[1] and (whole or not _NO_KEY.search(kinds[0])):
                widened.append(kinds[0])
                continue
            both = null_row([Field("l", kinds[0]), Field("r", kinds[1])])
            self._ask(view, f"SELECT l {sign} r AS e FROM ({both})")
            widened.append(self._ask(view, f"SELECT coalesce(l, r) AS k FROM ({both})")[0].type)
        left, left_keys = self._cast_keys(view, left, node.left_keys, widened)
        right, right_keys = self._cast_keys(view, right, node.right_keys, widened)
        join = replace(node, left=left, right=right, left_keys=left_keys, right_keys=right_keys)
        fields = self.types[left] + (() if node.how in ("semi", "anti") else self.types[right])
        if join.columns == node.columns:
            return join, fields
        # A key that had to be cast sits beside the column it was cast from; nobody above may see it.
        by_name = {field.name: field for field in fields}
        wrapped = Linear(join, None, tuple(Named(name, quoted(name)) for name in node.columns))
        self._settled[join] = join
        self.types[join] = fields
        return wrapped, tuple(by_name[name] for name in node.columns)

    def _settle_temporal(self, view: str, node: Temporal) -> tuple[Node, tuple[Field, ...]]:
        below = self.settle(view, node.input)
        have = {field.name: field.type for field in self.types[below]}
        for name in node.moments:
            if have[name] not in _MOMENTS:
                raise TypeMismatch(
                    f"view '{view}': {name} is a moment, expected a timestamp or a date, found {have[name]}", view=view
                )
        self._check_zone(view, node.calendar)
        below, moments = self._cast_keys(view, below, node.moments, ["timestamp"] * len(node.moments))
        found = dict(zip(node.moments, moments, strict=True))
        temporal = replace(
            node,
            input=below,
            start=None if node.start is None else found[node.start],
            end=None if node.end is None else found[node.end],
        )
        if temporal.columns == node.columns:
            return temporal, self.types[below]
        self._settled[temporal] = temporal
        self.types[temporal] = self.types[below]
        by_name = {field.name: field for field in self.types[below]}
        wrapped = Linear(temporal, None, tuple(Named(name, quoted(name)) for name in node.columns))
        return wrapped, tuple(by_name[name] for name in node.columns)

    def _check_zone(self, view: str, calendar: str) -> None:
        """When a condition on the clock holds is computed from rows; that must be right in the session's time zone."""
        zone = self.session.conf.get("spark.sql.session.timeZone") or ""
        if calendar == "fixed" and not keeps_days(self.session, zone):
            construct, advice = (
                "days, local time or truncation",
                "write timestampadd(HOUR, 24, …) for a day that passes, or set the session's time zone to UTC",
            )
        elif calendar == "days" and not keeps_dates(self.session, zone):
            construct, advice = "dates", "compare timestamps with now(), or set the session's time zone to UTC"
        else:
            return
        raise Unsupported(
            f"view '{view}': a condition on the current time with {construct} is not supported in the time zone "
            f"{zone}, where clocks are put back: {advice}",
            view=view,
            construct=f"a condition on the current time with {construct}",
        )

    def _settle_window(self, view: str, node: Window) -> tuple[Node, tuple[Field, ...]]:
        below = self.settle(view, node.input)
        names, calls = below.columns, []
        for call in node.calls:
            if call.function in NEIGHBOURS and len(call.arguments) == 2:
                # Spark casts the default to what it stands for.
                value, default = call.arguments
                below, default = self._cast_like(view, below, default, value)
                call = replace(call, arguments=(value, default))
            ends: list[Reach | None] = []
            for end in call.reach:
                if end is not None:
                    below, name = self._cast_like(view, below, end.column, node.order[0].column)
                    end = replace(end, column=name)
                ends.append(end)
            calls.append(replace(call, reach=(ends[0], ends[1])))
            self._check_reach(view, calls[-1], below)
        window = replace(node, input=below, calls=tuple(calls))
        known = {field.name: field.type for field in self.types[below]}
        kinds = [call_type(call.function, [known[one] for one in call.arguments]) for call in calls]
        found = _fields([call.name for call in calls], kinds)
        if found is None:
            columns = ", ".join(f"{over_text(window, call)} AS {quoted(call.name)}" for call in window.calls)
            found = self._ask(view, f"SELECT {columns} FROM ({null_row(self.types[below])})")
        fields = self.types[below] + found
        if len(below.columns) == len(names):
            return window, fields
        by_name = {field.name: field for field in fields}
        wrapped = Linear(window, None, tuple(Named(name, quoted(name)) for name in node.columns))
        self._settled[window] = window
        self.types[window] = fields
        return wrapped, tuple(by_name[name] for name in node.columns)

    def _cast_like(self, view: str, node: Node, name: str, other: str) -> tuple[Node, str]:
        """``node`` with a column that is ``name`` in the type of ``other``."""
        kind = next(field.type for field in self.types[node] if field.name == other)
        node, (found,) = self._cast_keys(view, node, (name,), [kind])
        return node, found

    def _check_maps(self, view: str, node: Aggregate) -> None:
        """Equal maps may have their entries in another order; Spark sorts them first, Holdfast does not."""
        kinds = {field.name: field.type for field in self.types[node.input]}
        counted = [name for call in node.calls if call.distinct for name in call.arguments]
        for name in (*node.keys, *counted):
            if "map<" in kinds[name]:
                raise Unsupported(
                    f"view '{view}': grouping by column '{name}' of type {kinds[name]} is not supported: "
                    "group by array_sort(map_entries(…)) instead",
                    view=view,
                    construct="grouping by a map",
                )

    def _check_reach(self, view: str, call: WindowCall, node: Node) -> None:
        """Values of some types cannot be told apart by 64 bits, or not be added to exactly."""
        kinds = {field.name: field.type for field in self.types[node]}
        for end in call.reach:
            if end is not None and kinds[end.column] not in _REACHED:
                raise Unsupported(
                    f"view '{view}': RANGE {end.text} over a column of type {kinds[end.column]} is not supported: "
                    "order by a whole number, a double, a date or a timestamp",
                    view=view,
                    construct=f"RANGE {end.text}",
                )

    def _cast_keys(
        self, view: str, node: Node, keys: tuple[str, ...], kinds: list[str]
    ) -> tuple[Node, tuple[str, ...]]:
        have = {field.name: field.type for field in self.types[node]}
        outputs = [Named(name, quoted(name)) for name in node.columns]
        names = []
        for key, kind in zip(keys, kinds, strict=True):
            if have[key] == kind:
                names.append(key)
                continue
            name = f"{key}:{kind}"
            outputs.append(Named(name, f"CAST({quoted(key)} AS {kind})"))
            names.append(name)
        if len(outputs) == len(node.columns):
            return node, keys
        return self.settle(view, Linear(node, None, tuple(dict.fromkeys(outputs)))), tuple(names)

    def _cast(self, view: str, node: Node, kinds: list[str]) -> Node:
        have = self.types[node]
        if [field.type for field in have] == kinds:
            return node
        outputs = tuple(
            Named(field.name, quoted(field.name) if field.type == kind else f"CAST({quoted(field.name)} AS {kind})")
            for field, kind in zip(have, kinds, strict=True)
        )
        return self.settle(view, Linear(node, None, outputs))

    def _ask(self, view: str, query: str) -> tuple[Field, ...]:
        known_to(self.session, query)
        try:
            schema = self.session.sql(query).schema
        except ParseException as refusal:
            raise SqlError(f"view '{view}': {_first_line(refusal)}", view=view) from None
        except AnalysisException as refusal:
            about = refusal.getMessageParameters() or {}
            near = about.get("routineName") or about.get("sqlExpr") or about.get("functionName") or ""
            message = f"view '{view}': {_first_line(refusal)}"
            raise TypeMismatch(message, view=view, condition=refusal.getCondition(), near=near.strip('"')) from None
        for field in schema.fields:
            # Spark hands no such struct to anybody but itself.
            if (name := doubled_field(field.dataType)) is not None:
                construct = f"a struct with two fields called {name!r}"
                raise Unsupported(
                    f"view '{view}': {construct} is not supported: name one of them with AS",
                    view=view,
                    construct=construct,
                )
        return fields_of(schema)


def _fields(names: Sequence[str], kinds: Sequence[str | None]) -> tuple[Field, ...] | None:
    """Fields of these types, if all are known."""
    known = [kind for kind in kinds if kind is not None]
    return tuple(map(Field, names, known)) if len(known) == len(kinds) else None


def _check_kept(view: str, node: Node, fields: tuple[Field, ...]) -> None:
    """All columns must be of types that can be kept."""
    for place, field in enumerate(fields):
        try:
            arrow_type(field.type)
        except SchemaError as error:
            near = node.outputs[place].sql if isinstance(node, Linear) else field.name
            raise TypeMismatch(
                f"view '{view}': column '{field.name}': {error}: cast it, or compute from it what is to be kept",
                view=view,
                column=field.name,
                near=near.replace("`", ""),
            ) from None


def _call_text(call: Call) -> str:
    distinct = "DISTINCT " if call.distinct else ""
    function, parameters = call.function, call.parameters if call.function == "percentile" else ()
    if function == "percentile_disc":
        function = "any_value"  # it is one of the values
    elif "try" in call.parameters:
        function = f"try_{function}"
    arguments = ", ".join([*(quoted(name) for name in call.arguments), *parameters]) or "*"
    return f"{function}({distinct}{arguments})"


def _first_line(error: AnalysisException | ParseException) -> str:
    """Spark's sentence, without its plan, its positions in our own query text, and its state code."""
    text = (error.getMessage() or str(error)).split("\n", 1)[0]
    text = re.sub(r"^\[[A-Z_.0-9]+\]\s*", "", text)
    return re.sub(r"\s*(SQLSTATE:? \w+|; line \d+ pos \d+;?)\s*", " ", text).strip()
