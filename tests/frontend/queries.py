"""Random queries that Spark and SQLite read alike: integers and strings, no division, names for all columns."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

TABLES = {"t": {"a": "int", "b": "int", "c": "str"}, "u": {"a": "int", "d": "int", "c": "str"}}

Columns = dict[str, str]  # what can be referred to → "int" or "str"
Rows = dict[str, list[tuple[int | str | None, ...]]]


@dataclass(frozen=True)
class Query:
    sql: str
    columns: Columns


class Maker:
    """Makes queries and rows from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.pick = self.random.choice

    def sometimes(self, one_in: int = 2) -> bool:
        return self.random.randrange(one_in) == 0

    def rows(self) -> Rows:
        numbers, letters = [None, -2, -1, 0, 1, 2, 3], [None, "x", "y", "X"]
        return {
            name: [
                (self.pick(numbers), self.pick(numbers), self.pick(letters)) for _ in range(self.random.randrange(9))
            ]
            for name in TABLES
        }

    def number(self, columns: Columns, depth: int = 2) -> str:
        names = [name for name, kind in columns.items() if kind == "int"]
        form = self.pick(["plain", "plain", "+", "-", "*", "neg", "coalesce", "case", "parens"])
        if depth == 0 or form == "plain":
            return self.pick([*names, *names, str(self.random.randrange(5))])
        one, other = self.number(columns, depth - 1), self.number(columns, depth - 1)
        match form:
            case "neg":
                return f"-({one})"
            case "coalesce":
                return f"coalesce({one}, {other})"
            case "case":
                return f"CASE WHEN {self.condition(columns, 0)} THEN {one} ELSE {other} END"
            case "parens":
                return f"({one})"
        return f"{one} {form} {other}"

    def varying(self, columns: Columns) -> str:
        """A number that is no constant."""
        while not any(name in (found := self.number(columns, 1)) for name in columns):
            pass
        return found

    def condition(self, columns: Columns, depth: int = 2) -> str:
        if depth > 0 and self.sometimes():
            one, other = self.condition(columns, depth - 1), self.condition(columns, depth - 1)
            return self.pick([f"{one} AND {other}", f"({one} OR {other})", f"NOT ({one})", f"({one}) AND ({other})"])
        words = [name for name, kind in columns.items() if kind == "str"]
        if words and self.sometimes(4):
            word = self.pick(words)
            return self.pick([f"{word} = 'x'", f"{word} IS NULL", f"{word} IN ('x', 'y')", f"upper({word}) > 'X'"])
        one, other = self.number(columns, 1), self.number(columns, 1)
        relation = self.pick(["=", "<>", "<", "<=", ">", ">="])
        return self.pick([f"{one} {relation} {other}"] * 3 + [f"({one}) IS NOT NULL", f"({one}) IN ({other}, 1)"])

    def from_(self, depth: int) -> tuple[str, Columns]:
        """A FROM clause and the (qualified) columns it offers."""
        columns: Columns = {}
        text, where = "", ""
        outer = self.sometimes()  # or commas, which bind more loosely to Spark than to SQLite
        for place in range(self.pick([1, 1, 2, 2, 3])):
            alias = f"r{place}"
            if depth > 0 and self.sometimes():
                inner = self.query(depth - 1)
                relation, own = f"({inner.sql}) AS {alias}", inner.columns
            else:
                name = self.pick(sorted(TABLES))
                relation, own = f"{name} AS {alias}", TABLES[name]
            here = {f"{alias}.{name}": kind for name, kind in own.items()}
            if place == 0:
                text = relation
            else:
                condition = f"{self.varying(columns)} = {self.varying(here)}"
                if self.sometimes():
                    condition += f" AND {self.condition({**columns, **here}, 1)}"
                if outer and (kind := self.pick(["", "LEFT ", "RIGHT ", "FULL "])):
                    if self.sometimes(4):
                        condition = self.condition({**columns, **here}, 1)
                    text += f" {kind}JOIN {relation} ON {condition}"
                elif not outer and self.sometimes(3):
                    text, where = f"{text}, {relation}", f"{where} AND {condition}"
                else:
                    text += f" JOIN {relation} ON {condition}"
            columns |= here
        if self.sometimes(4):
            where += f" AND {self.subquery(columns)}"
        if where or self.sometimes():
            text += f" WHERE {self.condition(columns)}{where}"
        return text, columns

    def subquery(self, columns: Columns) -> str:
        """A condition with a subquery over a table."""
        name = self.pick(sorted(TABLES))
        own = {f"s.{column}": kind for column, kind in TABLES[name].items()}
        value, member, local = self.number(columns, 1), self.varying(own), self.condition(own, 1)
        link = f"{self.varying(columns)} = {self.varying(own)}"
        if self.sometimes(3):
            link += f" AND {self.condition({**columns, **own}, 0)}"
        equal = link.split(" AND ")[0]
        chosen = self.pick(
            [
                f"EXISTS (SELECT 1 FROM {name} AS s WHERE {link})",
                f"NOT EXISTS (SELECT 1 FROM {name} AS s WHERE {link} AND {local})",
                f"({value}) IN (SELECT {member} FROM {name} AS s WHERE {local})",
                f"({value}) NOT IN (SELECT {member} FROM {name} AS s WHERE {local})",
                f"({value}) NOT IN (SELECT {member} FROM {name} AS s WHERE {equal})",
                f"({value}) >= (SELECT min({member}) FROM {name} AS s WHERE {local})",
                f"({value}) >= (SELECT count(*) - 1 FROM {name} AS s WHERE {equal})",
            ]
        )
        return f"({chosen} OR {self.condition(columns, 0)})" if self.sometimes(4) else chosen

    def select(self, depth: int) -> Query:
        body, columns = self.from_(depth)
        if self.sometimes():
            return self._grouped(columns, body)
        if self.sometimes(3):
            return self._windowed(columns, body)
        items = [self.number(columns) for _ in range(self.random.randint(1, 3))]
        words = [name for name, kind in columns.items() if kind == "str"]
        kinds = ["int"] * len(items)
        if words and self.sometimes():
            items.append(self.pick(words))
            kinds.append("str")
        names = [f"x{place}" for place in range(len(items))]
        listed = ", ".join(f"{item} AS {name}" for item, name in zip(items, names, strict=True))
        distinct = self.sometimes(3)
        sql = f"SELECT {'DISTINCT ' if distinct else ''}{listed} FROM {body}"
        if self.sometimes(3):
            # All output columns are in the order, so that ties make no difference.
            hidden = [self.varying(columns)] if not distinct and self.sometimes() else []
            order = [f"{each} {self.pick(['ASC', 'DESC', '', 'DESC NULLS FIRST'])}" for each in [*hidden, *names]]
            sql += f" ORDER BY {', '.join(order)} LIMIT {self.random.randrange(5)}{self.pick(['', ' OFFSET 1'])}"
        return Query(sql, dict(zip(names, kinds, strict=True)))

    def _grouped(self, columns: Columns, body: str) -> Query:
        keys = list(dict.fromkeys(self.varying(columns) for _ in range(self.random.randrange(3))))
        calls = []
        for _ in range(self.random.randint(1, 3)):
            call = self.pick(
                ["count(*)", "count(#)", "count(DISTINCT #)", "sum(#)", "sum(DISTINCT #)", "min(#)", "max(#)"]
            )
            call = call.replace("#", self.number(columns, 1))
            calls.append(f"{call} FILTER (WHERE {self.condition(columns, 1)})" if self.sometimes(4) else call)
        items = [*keys, *calls, f"{calls[0]} + {calls[-1]}"]
        names = [f"x{place}" for place in range(len(items))]
        listed = ", ".join(f"{item} AS {name}" for item, name in zip(items, names, strict=True))
        sql = f"SELECT {listed} FROM {body}"
        if keys:
            sql += f" GROUP BY {', '.join(keys)}"
            if self.sometimes():
                sql += f" HAVING {self.pick(calls)} > 0 AND ({self.pick(keys)}) < 3"
        return Query(sql, dict.fromkeys(names, "int"))

    def _windowed(self, columns: Columns, body: str) -> Query:
        names = list(columns)
        functions = ["row_number()", "rank()", "dense_rank()", "lag(#)", "lag(#, 2, #)", "lead(#, 1)", "lead(#, 1, #)"]
        framed = ["sum(#)", "count(#)", "count(*)", "min(#)", "max(#)", "first_value(#)", "last_value(#)"]
        frames = [
            "", "", "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", "ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING",
            "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", "ROWS 1 PRECEDING",
            "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
        ]  # fmt: skip
        items = []
        for _ in range(self.random.randint(1, 3)):
            function, frame = self.pick(functions), ""
            if self.sometimes():
                function, frame = self.pick(framed), self.pick(frames)
            while "#" in function:
                function = function.replace("#", self.number(columns, 1), 1)
            # All columns are in the order, so that rows that tie are equal.
            self.random.shuffle(names)
            first = [self.varying(columns)] if self.sometimes() else []
            order = ", ".join(f"{each} {self.pick(['ASC', 'DESC', '', 'DESC NULLS FIRST'])}" for each in first + names)
            partition = ", ".join(self.varying(columns) for _ in range(self.random.randrange(3)))
            over = f"{f'PARTITION BY {partition} ' if partition else ''}ORDER BY {order} {frame}".strip()
            items.append(f"{function} OVER ({over})")
        items += [self.number(columns) for _ in range(self.random.randrange(2))]
        shown = [f"x{place}" for place in range(len(items))]
        listed = ", ".join(f"{item} AS {name}" for item, name in zip(items, shown, strict=True))
        sql = f"SELECT {listed} FROM {body}"
        if self.sometimes():
            sql = f"SELECT {', '.join(shown)} FROM ({sql}) AS w WHERE {self.pick(shown)} <= {self.random.randrange(4)}"
        return Query(sql, dict.fromkeys(shown, "int"))

    def query(self, depth: int = 1) -> Query:
        query = self.select(depth)
        if "LIMIT" in query.sql or "str" in query.columns.values() or not self.sometimes(3):
            return query
        body = ", ".join(self.pick(["a", "a + b", "b"]) for _ in query.columns)
        kind = self.pick(["UNION ALL", "UNION", "INTERSECT", "EXCEPT"])
        return Query(f"SELECT * FROM ({query.sql}) AS q {kind} SELECT {body} FROM t", query.columns)
