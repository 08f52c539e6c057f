"""What queries are made of: relations with typed columns, and expressions over them.

Every query that a `Maker` makes has one answer, so that Spark's is the right one: where ties would show, an order has
every column in it. A column whose kind is None is not exact (Spark's sums of doubles depend on the order of rows): it
may be passed on, and nothing else. Expressions that can fail on a row (overflow, division by zero) are tested
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from .data import DOMAINS, TABLES

NUMBERS = {"bigint", "int", "double", "float", "decimal(12,2)", "decimal(30,4)"}
WHOLE = ("int", "bigint")
EXACT = tuple(kind for kind in DOMAINS if kind not in ("double", "float"))
"""Kinds whose equal values are the same value: -0.0 and 0.0 are equal, and read differently."""

ORDERED = set(DOMAINS) - {"struct<a:int,b:string>", "array<int>"}


@dataclass(frozen=True)
class Column:
    """A column in scope, or an expression: its text, and its type (None: not exact, or not one of `DOMAINS`)."""

    text: str
    kind: str | None


@dataclass(frozen=True)
class Query:
    """A statement and the columns it gives, or the name of a table or view and its columns."""

    sql: str
    columns: tuple[Column, ...]
    name: str = ""


@dataclass(frozen=True)
class Relation:
    """Something that stands in FROM."""

    text: str
    columns: list[Column]

    def of(self, kinds: Sequence[str] | set[str]) -> list[Column]:
        return [column for column in self.columns if column.kind in kinds]


_AS_INT = {
    "int": "{}",
    "bigint": "CAST({} % 5 AS int)",
    "decimal(12,2)": "CAST({} % 5 AS int)",
    "decimal(30,4)": "CAST({} % 5 AS int)",
    "string": "length({})",
    "date": "day({})",
    "timestamp": "minute({})",
    "boolean": "CAST({} AS int)",
    "struct<a:int,b:string>": "{}.a",
    "array<int>": "size({})",
}
_FROM_INT = {
    "int": "{}",
    "bigint": "CAST({} AS bigint)",
    "double": "CAST({} AS double)",
    "float": "CAST({} AS float)",
    "decimal(12,2)": "CAST({} AS decimal(12,2))",
    "decimal(30,4)": "CAST({} AS decimal(30,4))",
    "string": "CAST({} AS string)",
    "boolean": "({} > 0)",
    "date": "date_add(DATE'2024-01-01', {})",
    "timestamp": "timestamp_seconds(1700000000 + 60 * {})",
    "array<int>": "array({})",
    "struct<a:int,b:string>": "named_struct('a', {}, 'b', 'x')",
}


class Maker:
    """Makes one query: ``inner``, if there is one, stands somewhere in its FROM; the rest are tables."""

    def __init__(self, random: Random, inner: Query | None = None) -> None:
        self.random = random
        self._inner = inner
        self._aliases = 0

    # -- relations --------------------------------------------------------------------------------------------------

    def relation(self, table: str | None = None) -> Relation:
        """The inner query if it was not taken yet, else a table."""
        self._aliases += 1
        alias = f"{'q' if self._inner else 'r'}{self._aliases}"
        if self._inner is not None and table is None:
            query, self._inner = self._inner, None
            text = query.name or f"({query.sql})"
            return Relation(f"{text} {alias}", [Column(f"{alias}.{each.text}", each.kind) for each in query.columns])
        table = table or self.random.choice(sorted(TABLES))
        return Relation(f"{table} {alias}", [Column(f"{alias}.{name}", kind) for name, kind in TABLES[table]])

    def pair(self) -> tuple[Relation, Relation]:
        """Two relations; the inner query is one of them."""
        first, second = self.relation(), self.relation()
        return (first, second) if self.random.random() < 0.5 else (second, first)

    def exact(self, relation: Relation, most: int = 3, least: int = 1) -> Relation:
        """Some columns of a relation that have an order in which equal values are the same."""
        columns = relation.of(ORDERED) or [self.pick(relation, "int")]
        chosen = self.random.sample(columns, min(len(columns), self.random.randint(least, most)))
        while len(chosen) < least:
            chosen.append(Column(f"({chosen[-1].text} IS NULL)", "boolean"))
        sql = self.query(chosen, relation.text, self.where(relation, 0.25))
        self._aliases += 1
        alias = f"e{self._aliases}"
        return Relation(f"({sql.sql}) {alias}", [Column(f"{alias}.{each.text}", each.kind) for each in sql.columns])

    def query(self, items: Sequence[Column], relation: str, tail: str = "", word: str = "SELECT") -> Query:
        listed = ", ".join(f"{each.text} AS x{place}" for place, each in enumerate(items))
        outputs = tuple(Column(f"x{place}", each.kind) for place, each in enumerate(items))
        return Query(f"{word} {listed} FROM {relation}{tail}", outputs)

    # -- columns ----------------------------------------------------------------------------------------------------

    def pick(self, relation: Relation, *kinds: str) -> Column:
        """A column of one of these kinds; made of another, if there is none."""
        found = relation.of(kinds)
        if found:
            return self.random.choice(found)
        kind = self.random.choice(kinds)
        others = relation.of(EXACT)
        if not others:
            return Column(_FROM_INT[kind].format("1"), kind)
        other = self.random.choice(others)
        return Column(_FROM_INT[kind].format(_AS_INT[other.kind or ""].format(other.text)), kind)

    def some(self, relation: Relation, most: int = 3) -> list[Column]:
        """A few columns as they are."""
        return self.random.sample(relation.columns, self.random.randint(1, min(most, len(relation.columns))))

    def shared(self, left: Relation, right: Relation, kinds: Sequence[str] = tuple(DOMAINS)) -> tuple[Column, Column]:
        """A column of each side that can be compared: of one kind, or of two that Spark widens."""
        pairs = [(a, b) for a in left.of(kinds) for b in right.of(kinds) if a.kind == b.kind]
        pairs += [(a, b) for a in left.of(WHOLE) for b in right.of(WHOLE) if set(WHOLE) & set(kinds)]
        if pairs:
            return self.random.choice(pairs)
        return self.pick(left, "int"), self.pick(right, "int")

    def key(self, relation: Relation) -> Column:
        """Something to group by: a column, or an expression over one."""
        return self.expression(relation)

    def expression(self, relation: Relation) -> Column:
        typed = relation.of(set(DOMAINS))
        if not typed:
            return self.pick(relation, "int")
        column = self.random.choice(typed)
        if self.random.random() < 0.6:
            return column
        text = column.text
        match column.kind:
            case "bigint" | "int":
                case = f"CASE WHEN {text} > 1 THEN {text} ELSE 0 END"
                chosen = self.random.choice([f"{text} + 1", f"coalesce({text}, 7)", case, f"abs({text})", f"-{text}"])
                return Column(chosen, column.kind)
            case "double":
                plain = [f"{text} * 2.0D", f"coalesce({text}, 0.5D)", f"abs({text})", f"{text} + 1.0D"]
                return Column(self.random.choice(plain), "double")
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

    def order(self, columns: Sequence[Column]) -> str:
        """An order by all of ``columns``."""
        return ", ".join(
            f"{column.text}{self.random.choice(['', ' DESC'])}{self.random.choice(['', ' NULLS FIRST', ' NULLS LAST'])}"
            for column in self.random.sample(list(columns), len(columns))
        )

    # -- conditions -------------------------------------------------------------------------------------------------

    def where(self, relation: Relation, chance: float = 0.3) -> str:
        return f" WHERE {self.predicate(relation)}" if self.random.random() < chance else ""

    def unequal(self, left: Relation, right: Relation) -> str:
        """A condition on both sides that is no equality."""
        a, b = self.shared(left, right, sorted(ORDERED))
        return f"{a.text} {self.random.choice(['<', '>=', '<>'])} {b.text}"

    def predicate(self, relation: Relation) -> str:
        typed = relation.of(set(DOMAINS))
        if not typed:
            return "true"
        column = self.random.choice(typed)
        text = column.text
        simple = [f"{text} IS NULL", f"{text} IS NOT NULL"]
        match column.kind:
            case "bigint" | "int":
                simple += [f"{text} > 0", f"{text} IN (1, 2, 3)", f"{text} BETWEEN -1 AND 1", f"{text} <> 2"]
                simple += [f"{text} % 2 = 0", f"{text} <= 1"]
            case "double" | "float":
                simple += [f"{text} > 0.5D", f"isnan({text})", f"{text} <= 1.5D", f"{text} = 0.0D"]
            case "string":
                simple += [f"{text} LIKE 'a%'", f"{text} = 'a'", f"{text} > 'a'", f"length({text}) > 1"]
                simple += [f"{text} NOT IN ('a', 'b')"]
            case "boolean":
                simple += [text, f"NOT {text}"]
            case "date":
                simple += [f"{text} >= DATE'1970-01-01'", f"year({text}) = 2024"]
            case "timestamp":
                simple += [f"{text} > TIMESTAMP'2024-02-29 12:32:00'"]
            case "decimal(12,2)":
                simple += [f"{text} > 1.05", f"{text} = 0"]
            case "struct<a:int,b:string>":
                simple += [f"{text}.a = 1"]
            case "array<int>":
                simple += [f"array_contains({text}, 1)"]
        chosen = self.random.choice(simple)
        if self.random.random() < 0.25:
            return f"({chosen} {self.random.choice(['AND', 'OR'])} {self.predicate(relation)})"
        return chosen
