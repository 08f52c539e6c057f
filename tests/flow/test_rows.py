"""Rows of rows: generators, complex values and users' functions equal Spark's batch result after every epoch."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast.errors import EvaluationError, HoldfastError, SqlError, Unsupported
from holdfast.testing import Oracle, assert_same_rows

TABLES = {
    "t": (
        "id long, k string, xs array<int>, m map<string,int>, ss array<struct<a:int,b:string>>, "
        "s struct<x:int,y:array<string>>, j string, words string, nested array<array<int>>"
    ),
    "u": "id long, x int, name string",
}

GENERATORS = {
    "native_explode": "SELECT id, explode(xs) FROM t",
    "native_outer": "SELECT id, k, x FROM t LATERAL VIEW OUTER explode(xs) g AS x WHERE id % 3 <> 0",
    "native_map": "SELECT k, posexplode_outer(m) FROM t",
    "native_inline": "SELECT id, inline_outer(ss) FROM t WHERE k = 'a'",
    "native_chain": (
        "SELECT id, p, x FROM t LATERAL VIEW posexplode(nested) g AS p, n LATERAL VIEW OUTER explode(n) AS x"
    ),
    "split": "SELECT id, upper(w) AS w FROM t LATERAL VIEW explode(split(words, ' ')) g AS w WHERE w <> ''",
    "map_entries": "SELECT id, key, value + 1 AS v FROM t LATERAL VIEW OUTER explode(map_filter(m, (k, v) -> v > 1)) g",
    "counted": "SELECT w, count(*) AS n FROM t LATERAL VIEW explode(split(words, ' ')) g AS w GROUP BY w",
    "stack": "SELECT id, stack(2, k, xs[0] + 1, upper(k)) AS (a, b) FROM t WHERE size(xs) > 0",
    "json": "SELECT id, json_tuple(j, 'a', 'b') AS (a, b) FROM t",
    "inlined": "SELECT id, y, z FROM t LATERAL VIEW inline(filter(ss, e -> e.a > 0 OR e IS NULL)) g AS y, z",
    "variants": (
        "SELECT id, pos, key, to_json(value) AS v FROM t, LATERAL variant_explode(parse_json(j)) AS g(pos, key, value)"
    ),
    "outer_variants": "SELECT id, pos, to_json(value) AS v FROM t, LATERAL variant_explode_outer(parse_json(j))",
    "twice": "SELECT id, explode(xs) AS a, explode(xs) AS b, a + 1 AS c FROM t WHERE id < 20",
    "numbered": "SELECT id, explode(xs) AS x, count(*) OVER (PARTITION BY id) AS n FROM t",
    "two_kinds": (
        "SELECT id, x, w FROM t LATERAL VIEW explode(xs) g AS x LATERAL VIEW posexplode(split(words, ' ')) h AS p, w "
        "WHERE x > p"
    ),
    "joined": "SELECT t.id, g.x, u.name FROM t, LATERAL explode(xs) AS g(x), u WHERE u.x = g.x",
    "left_lateral": (
        "SELECT t.id, g.x, u.name FROM t LEFT JOIN LATERAL explode(xs) AS g(x) ON true JOIN u ON u.id = t.id"
    ),
    "over_groups": "SELECT k, explode(array(min(id), max(id))) AS e FROM t GROUP BY k",
    "unique": "SELECT DISTINCT explode(xs) AS x FROM t",
    "first": "SELECT id, x FROM t LATERAL VIEW explode(xs) g AS x ORDER BY x DESC, id LIMIT 5",
    "inside": "SELECT id FROM u WHERE x IN (SELECT y FROM t LATERAL VIEW explode(xs) g AS y WHERE y IS NOT NULL)",
}
COMPLEX = {
    "by_struct": "SELECT s, count(*) AS n, max(xs) AS m FROM t GROUP BY s",
    "by_array": "SELECT xs, min(s) AS a, count(DISTINCT ss) AS b FROM t GROUP BY xs",
    "distinct_rows": "SELECT DISTINCT s, nested, ss FROM t",
    "whole_rows": "SELECT m, s, xs, m['a'] AS a, get(s.y, 0) AS y FROM t",
    "joined_by_struct": "SELECT a.id, b.id AS other FROM t a JOIN t b ON a.s = b.s AND a.xs = b.xs",
    "joined_with_maps": "SELECT t.id, t.m, t.ss, u.name FROM t LEFT JOIN u ON t.id = u.id",
    "outer_maps": "SELECT t.m, u.id FROM t FULL JOIN u ON t.id = u.x",
    "top_structs": "SELECT id, s, m FROM t ORDER BY s DESC, xs, id LIMIT 4",
    "lists": "SELECT k, sort_array(collect_list(struct(id, xs))) AS l FROM t GROUP BY k",
    "sets": "SELECT k, sort_array(collect_set(s)) AS l FROM t GROUP BY k",
    "max_by": "SELECT k, max_by(s, struct(id, xs, s)) AS p, min(struct(xs, id)) AS q, max(ss) AS r FROM t GROUP BY k",
    "higher_order": (
        "SELECT id, transform(xs, (x, i) -> x + i) AS a, filter(xs, x -> x > 1) AS b, "
        "aggregate(xs, 0, (a, x) -> a + coalesce(x, 0), a -> a * 2) AS c, exists(xs, x -> x = 1) AS d, "
        "forall(xs, x -> x > 0) AS e, zip_with(xs, nested, (x, n) -> size(n)) AS f, map_keys(m) AS g, "
        "transform_values(m, (k, v) -> v + 1) AS h FROM t"
    ),
    "made": (
        "SELECT id, named_struct('a', k, 'b', xs) AS s, map(k, id) AS m, array(s, s) AS a FROM t WHERE k IS NOT NULL"
    ),
    "set_of_structs": "SELECT s, xs FROM t INTERSECT SELECT s, xs FROM t WHERE id % 2 = 0",
    "windowed": (
        "SELECT id, first_value(s) OVER (PARTITION BY xs ORDER BY id, s) AS f, max(s) OVER (PARTITION BY k) AS m FROM t"
    ),
}
VARIANTS = {
    "read": "SELECT id, variant_get(parse_json(j), '$.a', 'int') AS a, schema_of_variant(parse_json(j)) AS t FROM t",
    "kept": "SELECT id, k, parse_json(j) AS v FROM t",
    "shown": "SELECT id, to_json(v) AS v, v IS NULL AS n, try_variant_get(v, '$[1]', 'int') AS one FROM kept",
    "joined": "SELECT u.name, to_json(kept.v) AS v FROM kept LEFT JOIN u ON kept.id = u.id",
    "counted": "SELECT variant_get(v, '$.b', 'string') AS b, count(*) AS n FROM kept GROUP BY 1",
}


def _row(random: Random) -> tuple[Any, ...]:
    def some(value: Callable[[], Any]) -> Any:
        return None if random.random() < 0.15 else value()

    def number() -> int:
        return random.randint(0, 3)

    def numbers() -> list[int | None]:
        return [some(number) for _ in range(random.randint(0, 3))]

    return (
        random.randint(0, 40),
        some(lambda: random.choice("abc")),
        some(numbers),
        some(lambda: {key: some(number) for key in sorted(random.sample("abc", random.randint(0, 3)))}),
        some(
            lambda: [some(lambda: {"a": some(number), "b": random.choice("xy")}) for _ in range(random.randint(0, 2))]
        ),
        some(lambda: {"x": some(number), "y": some(lambda: random.choices("pq", k=random.randint(0, 2)))}),
        some(lambda: random.choice(['{"a":1,"b":"x"}', '{"b":null}', "[1,2]", "{}"])),
        some(lambda: " ".join(random.choices(["red", "green", ""], k=random.randint(0, 3)))),
        some(lambda: [some(numbers) for _ in range(random.randint(0, 2))]),
    )


def _other(random: Random) -> tuple[Any, ...]:
    return random.randint(0, 40), random.choice([None, 0, 1, 2]), random.choice(["ann", "bob"])


def _change(random: Random, oracle: Oracle, inputs: Mapping[str, Any], count: int = 20) -> None:
    for name, make in (("t", _row), ("u", _other)):
        have = oracle.rows(name)
        gone = random.sample(have, len(have) // 2)
        rows = [make(random) for _ in range(count)]
        inputs[name].insert(rows)
        inputs[name].delete(gone)
        oracle.insert(name, rows)
        oracle.delete(name, gone)


def _check(
    spark: SparkSession,
    directory: Path,
    views: dict[str, str],
    seed: int,
    declare: Callable[[Any], None] = lambda target: None,
    register: Callable[[SparkSession], None] = lambda session: None,
) -> None:
    """An epoch, a restart, and another with deletions; equal to Spark after each."""
    random, oracle = Random(seed), Oracle(spark, TABLES)
    register(oracle.session)
    for _ in range(2):
        with hf.Flow("rows", log=directory, spark=spark, partitions=2) as flow:
            inputs = {name: flow.input(name, schema) for name, schema in TABLES.items()}
            declare(flow)
            for view, sql in views.items():
                flow.view(view, sql)
            _change(random, oracle, inputs)
            flow.step()
            for view, frame in oracle.expect(views).items():
                found = flow.read(view)
                assert found.columns == frame.columns, view
                assert_same_rows(found, frame, f"{view} = {views[view]}")


def test_generators_equal_the_batch_result(spark: SparkSession, tmp_path: Path) -> None:
    _check(spark, tmp_path, GENERATORS, seed=1)


def test_complex_values_equal_the_batch_result(spark: SparkSession, tmp_path: Path) -> None:
    _check(spark, tmp_path, COMPLEX, seed=2)


def test_variants_equal_the_batch_result(spark: SparkSession, tmp_path: Path) -> None:
    random, oracle = Random(3), Oracle(spark, TABLES)
    with hf.Flow("variants", log=tmp_path, spark=spark, partitions=2) as flow:
        inputs = {name: flow.input(name, schema) for name, schema in TABLES.items()}
        for view, sql in VARIANTS.items():
            flow.view(view, sql)
        for _ in range(2):
            _change(random, oracle, inputs)
            flow.step()
            for view, frame in oracle.expect(VARIANTS).items():
                found = flow.read(view)
                if view == "kept":  # rows with a variant cannot leave Spark as Arrow
                    found, frame = (each.selectExpr("id", "k", "to_json(v)") for each in (found, frame))
                assert_same_rows(found, frame, view)


def test_a_source_may_have_variants_and_maps(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql("SELECT id, parse_json(concat('[', id, ',null]')) AS v, map('a', id) AS m FROM range(5)")
    with hf.Flow("variants", log=tmp_path, spark=spark, partitions=2) as flow:
        flow.source("t", hf.table(rows))
        flow.view("v", "SELECT id, v, m FROM t")
        flow.view("e", "SELECT id, explode(array(id, id + 1)) AS x, upper(to_json(v)) AS j FROM t")
        flow.view("n", "SELECT id, explode(m) FROM t")
        flow.view("u", "SELECT upper(to_json(v)) AS j FROM t WHERE id > 3")
        flow.step()
        assert flow.read("u").collect() == [("[4,NULL]",)]
        assert sorted(flow.read("v").selectExpr("id", "to_json(v)", "m['a']").collect())[1] == (1, "[1,null]", 1)
        assert sorted(flow.read("e").collect())[:3] == [(0, 0, "[0,NULL]"), (0, 1, "[0,NULL]"), (1, 1, "[1,NULL]")]
        assert sorted(flow.read("n").collect())[4] == (4, "a", 4)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT m, count(*) AS n FROM t GROUP BY m", "grouping by column 'm' of type map<string,int>"),
        ("SELECT DISTINCT m FROM t", "the type of column `m` is"),
        ("SELECT a.id FROM t a JOIN t b ON a.m = b.m", "does not support ordering on type"),
        ("SELECT id FROM t ORDER BY m LIMIT 1", "does not support ordering on type"),
        ("SELECT parse_json(j) AS v, count(*) AS n FROM t GROUP BY 1", "VARIANT"),
        ("SELECT id FROM t ORDER BY parse_json(j) LIMIT 1", "VARIANT"),
        ("SELECT m FROM t INTERSECT SELECT m FROM t", "Cannot have MAP type columns in a set operation"),
        ("SELECT explode(id) FROM t", "explode"),
        ("SELECT explode(m) AS x FROM t", "Expected 2 aliases"),
        ("SELECT stack(2, id, 1, k) FROM t", "do not have the same type"),
    ],
)
def test_what_spark_compares_with_nothing_is_refused(
    spark: SparkSession, tmp_path: Path, sql: str, message: str
) -> None:
    flow = hf.Flow("refused", log=tmp_path, spark=spark)
    flow.input("t", TABLES["t"])
    with pytest.raises((SqlError, Unsupported), match=message):
        flow.view("v", sql)


def shout(text: str | None, times: int | None) -> str | None:
    return None if text is None else text.upper() + "!" * (times or 0)


def total(numbers: list[int | None] | None) -> int:
    return sum(each or 0 for each in numbers or [])


def described(s: Any, m: dict[str, int | None] | None) -> Row | None:
    if s is None:
        return None
    return Row(first=s.x, size=len(s["y"] or []), keys=sorted(m) if m else None)


def doubled(numbers: pd.Series) -> pd.Series:
    return numbers * 2


def padded(numbers: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(pc.cast(numbers, pa.string()), texts, "-")


def fields_of(s: pd.DataFrame) -> pd.Series:
    return s["x"].fillna(-1).astype("int64")


def marked(text: str | None) -> datetime.datetime:
    return datetime.datetime(2024, 1, 1) + datetime.timedelta(days=len(text or ""))


FUNCTIONS: dict[str, tuple[Any, str]] = {
    "shout": (shout, "string"),
    "total": (total, "bigint"),
    "described": (described, "struct<first:int,size:int,keys:array<string>>"),
    "doubled": (doubled, "bigint"),
    "padded": (padded, "string"),
    "fields_of": (fields_of, "bigint"),
    "marked": (marked, "timestamp"),
}
CALLS = {
    "plain": "SELECT id, shout(k, id % 3) AS a, total(xs) AS b FROM t",
    "nested": "SELECT id, lower(shout(upper(k), 1)) AS a, shout(shout(k, 1), total(xs) % 2) AS b FROM t",
    "structs": "SELECT id, described(s, m) AS d, described(s, m).first AS f FROM t",
    "columnar": "SELECT id, doubled(id) AS a, padded(id, k) AS b, fields_of(s) AS c, marked(k) AS d FROM t",
    "filtered": "SELECT id FROM t WHERE k IS NOT NULL AND length(shout(k, id)) > 2 AND id > 3",
    "joined": "SELECT t.id, u.name FROM t JOIN u ON shout(t.k, 0) = upper(u.name) OR total(t.xs) = u.x",
    "keyed": "SELECT a.id, b.id AS other FROM t a JOIN t b ON total(a.xs) = total(b.xs)",
    "grouped": "SELECT shout(k, 1) AS s, sum(total(xs)) AS t, max(doubled(id)) AS d FROM t GROUP BY shout(k, 1)",
    "had": "SELECT k, count(*) AS n FROM t GROUP BY k HAVING total(collect_list(CAST(id AS int))) > 20",
    "generated": "SELECT id, w, shout(w, 1) AS s FROM t LATERAL VIEW explode(split(shout(words, 0), ' ')) g AS w",
    "windowed": "SELECT id, max(total(xs)) OVER (PARTITION BY shout(k, 1)) AS m FROM t",
    "first": "SELECT id, xs FROM t ORDER BY total(xs) DESC, id LIMIT 3",
}


def _declare(flow: hf.Flow) -> None:
    for name, (function, returns) in FUNCTIONS.items():
        flow.udf(name, function, returns)


def _register(session: SparkSession) -> None:
    styles = {"doubled": F.pandas_udf, "fields_of": F.pandas_udf, "padded": F.arrow_udf}
    for name, (function, returns) in FUNCTIONS.items():
        session.udf.register(name, styles.get(name, F.udf)(function, returns))


def test_functions_equal_the_batch_result(spark: SparkSession, tmp_path: Path) -> None:
    _check(spark, tmp_path, CALLS, 4, _declare, _register)


def test_functions_that_pyspark_made_are_taken_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    made = {
        name: styled(FUNCTIONS[name][0], FUNCTIONS[name][1])
        for name, styled in (("shout", F.udf), ("doubled", F.pandas_udf), ("padded", F.arrow_udf))
    }

    def declare(flow: hf.Flow) -> None:
        for name, function in made.items():
            flow.udf(name, function)

    views = {"v": "SELECT id, doubled(id) AS a, padded(id, shout(k, 2)) AS b FROM t"}
    _check(spark, tmp_path, views, 5, declare, lambda session: [session.udf.register(*each) for each in made.items()])


def test_an_error_in_a_function_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("errors", log=tmp_path, spark=spark, partitions=2) as flow:
        t = flow.input("t", "id long, k string")
        flow.udf("inverse", lambda number: 100 // number, "int")
        flow.view("v", "SELECT id, inverse(id) AS i FROM t")
        flow.view("w", "SELECT upper(k) AS k, concat(inverse(id + length(k)), '') AS i FROM t")
        t.insert([(1, "a"), (2, "b")])
        flow.step()
        t.insert([(5, "a"), (0, "b")])
        said = (
            r"view '[vw]', epoch 1: function 'inverse'\(0\) raised ZeroDivisionError: .* \(.*/test_rows.py, line \d+\)"
        )
        with pytest.raises(EvaluationError, match=said):
            flow.step()
        assert sorted(flow.read("v").collect()) == [(1, 100), (2, 50)]
        flow.udf("inverse", lambda number: 100 // number if number else -1, "int")
        flow.step()
        assert sorted(flow.read("v").collect()) == [(0, -1), (1, 100), (2, 50), (5, 20)]
        assert sorted(flow.read("w").collect()) == [("A", "16"), ("A", "50"), ("B", "100"), ("B", "33")]
        flow.udf("inverse", lambda number: str(number), "int")
        with pytest.raises(
            EvaluationError, match=r"function 'inverse'\(\d\) returned '\d', which is not of the declared"
        ):
            flow.step()


def test_a_decorated_function_is_declared_and_stays_itself(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("decorated", log=tmp_path, spark=spark, partitions=1) as flow:
        t = flow.input("t", "id long")

        @flow.udf("more", returns="long")
        def more(number: int) -> int:
            return number + 1

        flow.view("v", "SELECT more(id) AS m FROM t WHERE more(id) > 2")
        t.insert([(1,), (2,)])
        flow.step()
        assert more(1) == 2
        assert flow.read("v").collect() == [(3,)]


def test_functions_that_cannot_be_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow = hf.Flow("refused", log=tmp_path, spark=spark)
    flow.input("t", "id long, xs array<long>")

    def mean(numbers: pd.Series) -> float:
        return float(numbers.mean())

    for function, returns, message in (
        (mean, "double", "found one of groups or batches"),
        (shout, None, "say what it returns"),
        (F.udf(shout, "int"), "string", "it returns int, not string"),
        (hf.nondeterministic(doubled), "long", "nondeterministic function of columns"),
    ):
        with pytest.raises(HoldfastError, match=message):
            flow.udf("f", function, returns)
    flow.udf("f", lambda number: number + 1, "long")
    with pytest.raises(SqlError, match="Lambda function with Python UDF"):
        flow.view("v", "SELECT transform(xs, x -> f(x)) AS y FROM t")


def test_a_function_that_exits_is_an_error_of_the_epoch(spark: SparkSession, tmp_path: Path) -> None:
    def leave(number: int) -> int:
        if number > 1:
            raise SystemExit(3)
        return number

    with hf.Flow("exits", log=tmp_path, spark=spark, partitions=1) as flow:
        t = flow.input("t", "id long")
        flow.udf("leave", leave, "long")
        flow.view("v", "SELECT leave(id) AS i FROM t")
        t.insert([(1,)])
        flow.step()
        t.insert([(2,)])
        with pytest.raises(EvaluationError, match=r"view 'v', epoch 1: function 'leave'\(2\) raised SystemExit: 3"):
            flow.step()
        t.discard()
        t.insert([(0,)])
        flow.step()
        assert sorted(flow.read("v").collect()) == [(0,), (1,)]
