"""Random inputs, changes and views, from one `random.Random` (hypothesis owns it, and shrinks it).

Domains are small, so that groups meet, joins match and rows repeat; they hold what breaks systems like this one: NULL,
NaN, -0.0, infinities, empty strings, strings with a common prefix, nested values. Queries are built from typed scopes,
so that they are right for Spark; expressions that can fail on a row (overflow, division by zero) are tested elsewhere.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

UTC = datetime.UTC
DOMAINS: dict[str, list[Any]] = {
    "bigint": [None, 0, 1, 2, 3, -1, 2**40, -(2**40)],
    "int": [None, 0, 1, 2, 3, -5],
    "double": [None, 0.0, -0.0, math.nan, 1.5, -2.25, 0.1, 0.2, 1e10, math.inf, -math.inf],
    "float": [None, 0.0, -0.0, math.nan, 1.5, -2.25],
    "string": [None, "", "a", "b", "ab", "a common prefix 1", "a common prefix 2", "ünïcode", "zero\x00byte"],
    "decimal(12,2)": [None, Decimal("0.00"), Decimal("1.10"), Decimal("-1.10"), Decimal("9999999999.99")],
    "decimal(30,4)": [None, Decimal("0.0000"), Decimal("12345678901234567890.1234"), Decimal("-0.0001")],
    "date": [None, datetime.date(1970, 1, 1), datetime.date(2024, 2, 29), datetime.date(1969, 12, 31)],
    "timestamp": [
        None,
        datetime.datetime(1970, 1, 1, tzinfo=UTC),
        datetime.datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=UTC),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ],
    "boolean": [None, True, False],
    "struct<a:int,b:string>": [
        None,
        {"a": 1, "b": "x"},
        {"a": 1, "b": None},
        {"a": None, "b": "x"},
        {"a": 2, "b": "x"},
    ],
    "array<int>": [None, [], [1], [1, None], [1, 2], [2, 1]],
}
NUMBERS = {"bigint", "int", "double", "float", "decimal(12,2)", "decimal(30,4)"}
JOINS = [
    "JOIN",
    "JOIN",
    "JOIN",
    "LEFT JOIN",
    "LEFT JOIN",
    "RIGHT JOIN",
    "FULL JOIN",
    "LEFT SEMI JOIN",
    "LEFT ANTI JOIN",
]
PIVOTED = {
    "bigint": ["1", "2"],
    "int": ["0", "1", "3"],
    "string": ["'a'", "'b'", "NULL"],
    "boolean": ["true", "false"],
}
"""Columns that are pivoted, and by which of their values."""

ORDERED = set(DOMAINS) - {"struct<a:int,b:string>", "array<int>"}


@dataclass(frozen=True)
class Column:
    """A column in scope: how to refer to it, and its type (None: not one that expressions are built from)."""

    text: str
    kind: str | None


@dataclass
class Case:
    """A generated flow."""

    tables: dict[str, list[tuple[str, str]]]
    views: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, list[Column]] = field(default_factory=dict)

    def schema(self, table: str) -> str:
        return ", ".join(f"{name} {kind}" for name, kind in self.tables[table])


def generate_case(random: Random, views: int) -> Case:
    """Two or three tables, and views over them (and over each other)."""
    case = Case({})
    for number in range(random.randint(2, 3)):
        kinds = [random.choice(["bigint", "string"]), *random.sample(sorted(DOMAINS), random.randint(2, 4))]
        case.tables[f"t{number}"] = [(f"c{place}", kind) for place, kind in enumerate(kinds)]
    for number in range(views):
        name = f"v{number}"
        case.views[name] = Query(case, random).text(name)
    return case


def generate_row(random: Random, kinds: list[str]) -> tuple[Any, ...]:
    return tuple(random.choice(DOMAINS[kind]) for kind in kinds)


class Query:
    """One generated query."""

    def __init__(self, case: Case, random: Random) -> None:
        self.case = case
        self.random = random
        self.aliases = 0

    def text(self, view: str) -> str:
        sql, columns = self.query(depth=2)
        self.case.outputs[view] = columns
        return sql

    def query(self, depth: int) -> tuple[str, list[Column]]:
        """A query, and the columns it gives (by their names)."""
        shape = self.random.choice(
            [
                "select", "select", "aggregate", "aggregate", "aggregate", "distinct", "top", "set", "set", "pivot",
                "window", "window",
            ]
        )  # fmt: skip
        if depth <= 0:
            shape = "select"
        match shape:
            case "aggregate":
                return self.aggregate(depth)
            case "distinct":
                return self.distinct(depth)
            case "top":
                return self.top(depth)
            case "set":
                return self.set_operation(depth)
            case "pivot":
                return self.pivot(depth)
            case "window":
                return self.window(depth)
        return self.select(depth)

    # -- relations --------------------------------------------------------------------------------------------------

    def relation(self, depth: int) -> tuple[str, list[Column]]:
        """A FROM clause, and the columns in scope."""
        text, columns = self.operand(depth)
        for _ in range(self.random.choice([0, 0, 0, 1, 1, 2]) if depth > 0 else 0):
            other, more = self.operand(depth - 1)
            pairs = [(a, b) for a in columns for b in more if a.kind == b.kind and a.kind in DOMAINS]
            if not pairs:
                continue
            kind = self.random.choice(JOINS)
            conditions = []
            for a, b in self.random.sample(pairs, min(len(pairs), self.random.choice([1, 1, 2]))):
                conditions.append(f"{a.text} {self.random.choice(['=', '=', '=', '<=>'])} {b.text}")
            if self.random.random() < 0.3:
                conditions.append(self.predicate(columns + more))
            if self.random.random() < 0.1:
                conditions = [self.unequal(columns, more)]
            text = f"{text} {kind} {other} ON {' AND '.join(conditions)}"
            columns = columns if kind in ("LEFT SEMI JOIN", "LEFT ANTI JOIN") else columns + more
        return text, columns

    def unequal(self, columns: list[Column], more: list[Column]) -> str:
        """A condition on both sides without an equality; no condition if there is none."""
        pairs = [(a, b) for a in columns for b in more if a.kind == b.kind and a.kind in ORDERED]
        if not pairs:
            return "true"
        a, b = self.random.choice(pairs)
        return f"{a.text} {self.random.choice(['<', '>=', '<>'])} {b.text}"

    def operand(self, depth: int) -> tuple[str, list[Column]]:
        self.aliases += 1
        alias = f"r{self.aliases}"
        if depth > 1 and self.random.random() < 0.25:
            sql, columns = self.query(depth - 1)
            return f"({sql}) {alias}", [Column(f"{alias}.{column.text}", column.kind) for column in columns]
        if self.case.outputs and self.random.random() < 0.2:
            view = self.random.choice(sorted(self.case.outputs))
            return f"{view} {alias}", [Column(f"{alias}.{c.text}", c.kind) for c in self.case.outputs[view]]
        table = self.random.choice(sorted(self.case.tables))
        return f"{table} {alias}", [Column(f"{alias}.{name}", kind) for name, kind in self.case.tables[table]]

    def where(self, columns: list[Column]) -> str:
        parts = [self.predicate(columns)] if self.random.random() < 0.4 else []
        parts += [self.subquery(columns)] if self.random.random() < 0.25 else []
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def subquery(self, columns: list[Column]) -> str:
        """A condition with a subquery over a table or view."""
        other, more = self.operand(0)
        pairs = [(a, b) for a in columns for b in more if a.kind == b.kind and a.kind in DOMAINS]
        if not pairs:
            return f"EXISTS (SELECT 1 FROM {other} WHERE {self.predicate(more)})"
        a, b = self.random.choice(pairs)
        link, *further = [f"{x.text} = {y.text}" for x, y in self.random.sample(pairs, min(len(pairs), 2))]
        where = f" WHERE {' AND '.join([*further, self.predicate(more)])}" if self.random.random() < 0.5 else ""
        forms = [
            f"EXISTS (SELECT 1 FROM {other} WHERE {link})",
            f"NOT EXISTS (SELECT * FROM {other} WHERE {link} AND {self.predicate(more)})",
            f"EXISTS (SELECT 1 FROM {other} WHERE {link} AND {self.unequal(columns, more)})",
            f"{a.text} IN (SELECT {b.text} FROM {other}{where})",
            f"(SELECT count(*) FROM {other} WHERE {link}) {self.random.choice(['= 0', '> 1', '<> 1'])}",
        ]
        if a.kind not in ("double", "float"):  # Spark's NOT IN does not take -0.0 for 0.0, as its joins do
            forms.append(f"{a.text} NOT IN (SELECT {b.text} FROM {other}{where})")
        if a.kind in ORDERED:
            forms.append(f"{a.text} >= (SELECT min({b.text}) FROM {other})")
            forms.append(f"{a.text} <> (SELECT max({b.text}) FROM {other} WHERE {link})")
        chosen = self.random.choice(forms)
        return f"({chosen} OR {self.predicate(columns)})" if self.random.random() < 0.25 else chosen

    # -- shapes -----------------------------------------------------------------------------------------------------

    def select(self, depth: int) -> tuple[str, list[Column]]:
        text, columns = self.relation(depth)
        chosen = [self.expression(columns) for _ in range(self.random.randint(1, 3))]
        items = ", ".join(f"{each.text} AS x{place}" for place, each in enumerate(chosen))
        outputs = [Column(f"x{place}", each.kind) for place, each in enumerate(chosen)]
        return f"SELECT {items} FROM {text}{self.where(columns)}", outputs

    def distinct(self, depth: int) -> tuple[str, list[Column]]:
        sql, columns = self.select(depth)
        return sql.replace("SELECT ", "SELECT DISTINCT ", 1), columns

    def aggregate(self, depth: int) -> tuple[str, list[Column]]:
        text, columns = self.relation(depth)
        keys = [self.expression(columns) for _ in range(self.random.choice([0, 1, 1, 1, 2]))]
        calls = [self.call(columns) for _ in range(self.random.randint(1, 3))]
        shown = [key for key in keys if self.random.random() < 0.8]
        items = shown + calls
        select = ", ".join(f"{each.text} AS x{place}" for place, each in enumerate(items))
        group = f" GROUP BY {self.grouping([key.text for key in keys])}" if keys else ""
        having = ""
        if keys and self.random.random() < 0.3:
            having = f" HAVING count(*) {self.random.choice(['> 1', '<= 2', '<> 2'])}"
        outputs = [Column(f"x{place}", each.kind) for place, each in enumerate(items)]
        return f"SELECT {select} FROM {text}{self.where(columns)}{group}{having}", outputs

    def grouping(self, keys: list[str]) -> str:
        """What stands behind GROUP BY."""
        listed = ", ".join(keys)
        first = self.random.choice(keys)
        sets = [f"ROLLUP ({listed})", f"CUBE ({listed})", f"GROUPING SETS (({listed}), ({first}), ())"]
        return self.random.choice([listed, listed, listed, *sets])

    def pivot(self, depth: int) -> tuple[str, list[Column]]:
        text, columns = self.relation(depth - 1)
        key = self.expression(columns)
        of = [column for column in columns if column.kind in PIVOTED]
        numbers = [column for column in columns if column.kind in NUMBERS]
        if not of or not numbers:
            return self.select(depth)
        by, value = self.random.choice(of), self.random.choice(numbers)
        inner = f"SELECT {key.text} AS x0, {by.text} AS p, {value.text} AS v FROM {text}{self.where(columns)}"
        function = self.random.choice(["sum", "count", "max", "avg"])
        values = [f"{each} AS y{place}" for place, each in enumerate(PIVOTED[by.kind or ""])]
        sql = f"SELECT * FROM ({inner}) PIVOT ({function}(v) FOR p IN ({', '.join(values)}))"
        return sql, [Column("x0", key.kind), *(Column(f"y{place}", None) for place in range(len(values)))]

    def top(self, depth: int) -> tuple[str, list[Column]]:
        sql, columns = self.select(depth)
        if not all(column.kind in ORDERED for column in columns):
            return sql, columns
        # Every column is in the order, so that the answer is one, whatever breaks the ties.
        order = self.order(columns)
        offset = self.random.choice(["", "", f" OFFSET {self.random.randint(1, 2)}"])
        return f"SELECT * FROM ({sql}) ORDER BY {order} LIMIT {self.random.randint(1, 4)}{offset}", columns

    def order(self, columns: list[Column]) -> str:
        names = self.random.sample([column.text for column in columns], len(columns))
        return ", ".join(
            f"{name}{self.random.choice(['', ' DESC'])}{self.random.choice(['', ' NULLS FIRST', ' NULLS LAST'])}"
            for name in names
        )

    def window(self, depth: int) -> tuple[str, list[Column]]:
        """Window functions over a subquery, some of them cut to the first rows of each partition."""
        sql, columns = self.query(depth - 1)
        if not all(column.kind in ORDERED for column in columns):
            return sql, columns
        calls = [self.over(columns) for _ in range(self.random.randint(1, 2))]
        outputs = [Column(f"x{place}", each.kind) for place, each in enumerate([*columns, *calls])]
        items = [f"{each.text} AS {out.text}" for each, out in zip([*columns, *calls], outputs, strict=True)]
        text = f"SELECT {', '.join(items)} FROM ({sql})"
        first = [out.text for out, call in zip(outputs[len(columns) :], calls, strict=True) if call.kind == "int"]
        if first and self.random.random() < 0.5:
            place = self.random.choice(first)
            count = self.random.choice([f"{place} <= {self.random.randint(1, 3)}", f"{place} = 1", f"2 > {place}"])
            text = f"SELECT * FROM ({text}) WHERE {count}" if self.random.random() < 0.7 else f"{text} QUALIFY {count}"
        return text, outputs

    def over(self, columns: list[Column]) -> Column:
        """One window function. Where ties would show, every column is in its order."""
        column = self.random.choice(columns)
        text, kind = column.text, column.kind
        partition = self.random.sample([each.text for each in columns], self.random.choice([0, 1, 1]))
        by = f"PARTITION BY {', '.join(partition)} " if partition else ""
        some, every = self.order(self.random.sample(columns, 1)), self.order(columns)
        bounds = self.random.choice(
            [
                "UNBOUNDED PRECEDING AND CURRENT ROW", "1 PRECEDING AND 1 FOLLOWING", "2 PRECEDING AND 1 PRECEDING",
                "CURRENT ROW AND UNBOUNDED FOLLOWING", "UNBOUNDED PRECEDING AND 1 FOLLOWING",
            ]
        )  # fmt: skip
        nulls = self.random.choice(["", " IGNORE NULLS"])
        match self.random.choice(["place", "place", "rank", "share", "neighbour", "value", "frame", "frame"]):
            case "place":
                return Column(f"{self.random.choice(['row_number()', 'ntile(2)'])} OVER ({by}ORDER BY {every})", "int")
            case "rank":
                return Column(f"{self.random.choice(['rank', 'dense_rank'])}() OVER ({by}ORDER BY {some})", "int")
            case "share":
                function = self.random.choice(["percent_rank", "cume_dist"])
                return Column(f"{function}() OVER ({by}ORDER BY {some})", "double")
            case "neighbour":
                default = self.random.choice(["", ", 1", f", 2, {text}", f", 1, {text}"])
                call = f"{self.random.choice(['lag', 'lead'])}({text}{default}){nulls}"
                return Column(f"{call} OVER ({by}ORDER BY {every})", kind)
            case "value":
                call = self.random.choice([f"first_value({text})", f"last_value({text})", f"nth_value({text}, 2)"])
                return Column(f"{call}{nulls} OVER ({by}ORDER BY {every} ROWS BETWEEN {bounds})", kind)
        numbers = [(f"sum({text})", None), (f"avg({text})", None)] if kind in NUMBERS else []
        call, result = self.random.choice(
            [(f"min({text})", kind), (f"max({text})", kind), (f"count({text})", "bigint"), *numbers]
        )
        frames = ["", f"ORDER BY {some}", f"ORDER BY {every} ROWS BETWEEN {bounds}"]
        for near in (each for each in columns if each.kind in {"bigint", "int", "double"}):
            direction = self.random.choice(["", " DESC", " NULLS LAST"])
            frames.append(f"ORDER BY {near.text}{direction} RANGE BETWEEN {bounds}")
        frame = self.random.choice(frames)
        return Column(f"{call} OVER ({by}{frame})", result)

    def set_operation(self, depth: int) -> tuple[str, list[Column]]:
        left, columns = self.select(depth - 1)
        if not all(column.kind in DOMAINS for column in columns):
            return left, columns
        for _ in range(8):
            right, others = self.select(depth - 1)
            if [column.kind for column in others] == [column.kind for column in columns]:
                kind = self.random.choice(["UNION", "UNION", "INTERSECT", "EXCEPT"])
                word = f"{kind}{self.random.choice(['', ' ALL'])}"
                return f"SELECT * FROM ({left} {word} {right})", columns
        return left, columns

    # -- expressions ------------------------------------------------------------------------------------------------

    def expression(self, columns: list[Column]) -> Column:
        typed = [column for column in columns if column.kind in DOMAINS]
        column = self.random.choice(typed or columns)
        if column.kind is None or self.random.random() < 0.6:
            return column
        text = column.text
        match column.kind:
            case "bigint" | "int":
                case = f"CASE WHEN {text} > 1 THEN {text} ELSE 0 END"
                chosen = self.random.choice([f"{text} + 1", f"coalesce({text}, 7)", case, f"abs({text})", f"-{text}"])
                return Column(chosen, column.kind)
            case "double":
                return Column(
                    self.random.choice([f"{text} * 2.0D", f"coalesce({text}, 0.5D)", f"abs({text})", f"{text} + 1.0D"]),
                    "double",
                )
            case "string":
                plain = [f"upper({text})", f"concat({text}, 'x')", f"coalesce({text}, 'none')"]
                others = [f"substring({text}, 1, 2)", f"CAST(length({text}) AS string)"]
                return Column(self.random.choice(plain + others), "string")
            case "date":
                return Column(f"year({text})", "int")
            case "timestamp":
                return Column(f"CAST({text} AS date)", "date")
            case "struct<a:int,b:string>":
                return self.random.choice([Column(f"{text}.a", "int"), Column(f"{text}.b", "string")])
            case "array<int>":
                return Column(f"size({text})", "int")
        return column

    def predicate(self, columns: list[Column]) -> str:
        typed = [column for column in columns if column.kind in DOMAINS]
        if not typed:
            return "true"
        column = self.random.choice(typed)
        text = column.text
        simple = [f"{text} IS NULL", f"{text} IS NOT NULL"]
        match column.kind:
            case "bigint" | "int":
                simple += [
                    f"{text} > 0",
                    f"{text} IN (1, 2, 3)",
                    f"{text} BETWEEN -1 AND 1",
                    f"{text} <> 2",
                    f"{text} % 2 = 0",
                ]
            case "double" | "float":
                simple += [f"{text} > 0.5D", f"isnan({text})", f"{text} <= 1.5D", f"{text} = 0.0D"]
            case "string":
                simple += [
                    f"{text} LIKE 'a%'",
                    f"{text} = 'a'",
                    f"{text} > 'a'",
                    f"length({text}) > 1",
                    f"{text} NOT IN ('a', 'b')",
                ]
            case "boolean":
                simple += [text, f"NOT {text}"]
            case "date":
                simple += [f"{text} >= DATE'1970-01-01'", f"year({text}) = 2024"]
            case "decimal(12,2)":
                simple += [f"{text} > 1.05", f"{text} = 0"]
            case "struct<a:int,b:string>":
                simple += [f"{text}.a = 1"]
            case "array<int>":
                simple += [f"array_contains({text}, 1)"]
        chosen = self.random.choice(simple)
        if self.random.random() < 0.25:
            return f"({chosen} {self.random.choice(['AND', 'OR'])} {self.predicate(columns)})"
        return chosen

    def call(self, columns: list[Column]) -> Column:
        typed = [column for column in columns if column.kind in DOMAINS]
        if not typed:
            return Column("count(*)", "bigint")
        column = self.random.choice(typed)
        text, kind = column.text, column.kind
        choices = [("count(*)", "bigint"), (f"count({text})", "bigint"), (f"count(DISTINCT {text})", "bigint")]
        if kind in NUMBERS:
            choices += [(f"sum({text})", None), (f"avg({text})", None), (f"sum({text})", None)]
        if kind in {"bigint", "int", "decimal(12,2)"}:
            choices += [
                (f"{self.random.choice(['stddev', 'variance', 'stddev_pop', 'var_pop'])}(CAST({text} AS int))", None)
            ]
            if kind != "int":
                choices.pop()
        if kind in ORDERED:
            choices += [
                (f"min({text})", kind),
                (f"max({text})", kind),
                (f"min({text})", kind),
                (f"any_value({text})", kind),
            ]
        if kind in {"bigint", "int"}:
            bits = self.random.choice(["bit_and", "bit_or", "bit_xor"])
            choices += [(f"{bits}({text})", kind), (f"mode() WITHIN GROUP (ORDER BY {text})", kind)]
        if kind in NUMBERS:
            choices += [(f"sum(DISTINCT {text})", None), (f"median({text})", None), (f"percentile({text}, 0.3)", None)]
        if kind in ORDERED:
            other = self.random.choice([column for column in typed if column.kind in ORDERED])
            # The value breaks the ties of the order, so that Spark has but one answer.
            pair = f"named_struct('o', {other.text}, 'v', {text})"
            best = f"{self.random.choice(['max_by', 'min_by'])}({text}, {pair})"
            choices += [(best, kind), (f"sort_array(collect_list({text}))", None)]
        if kind in ORDERED - {"double", "float"}:
            choices += [(f"sort_array(collect_set({text}))", None)]
        condition = self.predicate(columns)
        truths = [f"count_if({condition})", f"bool_and({condition})", f"bool_or({condition})"]
        choices += [(truth, "bigint" if truth.startswith("count") else "boolean") for truth in truths]
        sql, result = self.random.choice(choices)
        if not sql.startswith("sort_array") and self.random.random() < 0.2:
            sql += f" FILTER (WHERE {self.predicate(columns)})"
        return Column(sql, result)
