"""Statements that a reader thought of, and no generator: each view, through a change, is what Spark says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import holdfast as hf

STATEMENTS = {
    "null is not the text 'null'": (
        "SELECT * FROM VALUES ('null') a(x) UNION ALL SELECT * FROM VALUES (CAST(NULL AS STRING)) b(x)"
    ),
    "texts have an end": (
        "SELECT * FROM VALUES ('a,b', 'c') a(x, y) UNION ALL SELECT * FROM VALUES ('a', 'b,c') b(x, y)"
    ),
    "a union of structs": "SELECT named_struct('x', id) AS s FROM t UNION SELECT named_struct('y', n) FROM u",
    "a union all of structs": "SELECT named_struct('x', id) AS s FROM t UNION ALL SELECT named_struct('y', n) FROM u",
    "a union of structs in lists": (
        "SELECT array(named_struct('x', id, 'z', n)) AS s FROM t JOIN u UNION ALL "
        "SELECT array(named_struct('y', n, 'x', n)) FROM u"
    ),
    "a decimal by a bigint": (
        "SELECT n, CAST(0.1 AS DECIMAL(18, 18)) / n AS q, CAST(n AS DECIMAL(38, 0)) / 7 AS r FROM u"
    ),
    "a zero that nobody looks at": (
        "SELECT n, IF(n % 2 = 0, NULL, CAST(n AS DECIMAL(10, 2))) + CAST(1 AS DECIMAL(10, 2)) / "
        "CAST(n % 2 AS DECIMAL(10, 2)) AS y FROM u"
    ),
    "the middle of decimals": (
        "SELECT n % 50 AS k, median(CAST(n AS DECIMAL(10, 2)) / 100) AS m, "
        "percentile_disc(0.4) WITHIN GROUP (ORDER BY CAST(CAST(n AS DECIMAL(10, 2)) / 100 AS DECIMAL(12, 2))) AS d "
        "FROM u GROUP BY n % 50"
    ),
    "a percentile from above": (
        "SELECT n % 7 AS k, percentile_cont(0.3) WITHIN GROUP (ORDER BY CAST(n AS DOUBLE) / 3 DESC) AS p, "
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY IF(n < 9, CAST('Infinity' AS DOUBLE), -1.5D * n) DESC) AS q "
        "FROM u WHERE n < 16 GROUP BY n % 7"
    ),
    "a difference of structs": "SELECT struct(n AS a) AS s FROM u EXCEPT SELECT struct(id AS A) FROM t",
    "what structs have in common": "SELECT struct(n AS a) AS s FROM u INTERSECT SELECT struct(id AS A) FROM t",
    "null among the rows of a subquery": (
        "SELECT id, NULL IN (SELECT n FROM u) AS some, NULL IN (SELECT n FROM u WHERE n > 900) AS none, "
        "NULL NOT IN (SELECT n FROM u) AS other FROM t"
    ),
    "the sign of a zero beside a join": (
        "SELECT CAST(d AS string) AS s, n FROM (SELECT IF(id % 2 = 0, -0.0D, 0.0D) AS d FROM t) z "
        "LEFT JOIN (SELECT n FROM u WHERE n < 3) u ON CAST(d AS string) > '-' || n"
    ),
    "the sign of a zero beside a subquery": (
        "SELECT CAST(d AS string) AS s FROM (SELECT IF(id % 2 = 0, -0.0D, 0.0D) AS d FROM t) z WHERE EXISTS "
        "(SELECT 1 FROM u WHERE CAST(d AS string) > '-' || n AND length(CAST(d AS string)) > length(CAST(n AS string)))"
    ),
    "a window in a correlated subquery": (
        "SELECT id, (SELECT max(r) FROM (SELECT rank() OVER (ORDER BY n % 2) AS r FROM u WHERE n % 5 = id)) AS m FROM t"
    ),
    "a window in a lateral subquery": (
        "SELECT id, s.* FROM t, LATERAL (SELECT n, lag(n) OVER (ORDER BY n) AS before FROM u WHERE n % 50 = id) s"
    ),
    "greatest ones, each once": "SELECT max_by(DISTINCT n % 5, n % 5, 3) AS m FROM u",
}
"""What it is about → the statement."""

PADDED = {
    "SELECT t.id, s.* FROM t LEFT JOIN LATERAL (SELECT explode(xs) AS e, 1 AS one, t.id + 1 AS c) s": (
        "SELECT id, e, IF(p IS NULL, NULL, 1) AS one, IF(p IS NULL, NULL, id + 1) AS c FROM made"
    ),
    "SELECT t.id, s.* FROM t LEFT JOIN LATERAL (SELECT coalesce(e, 0) AS f, e IS NULL AS n FROM "
    "(SELECT explode(xs) AS e)) s": "SELECT id, IF(p IS NULL, NULL, coalesce(e, 0)) AS f, "
    "IF(p IS NULL, NULL, e IS NULL) AS n FROM made",
    "SELECT t.id, s.f FROM t LEFT JOIN LATERAL (SELECT e AS f FROM (SELECT explode(xs) AS e)) s": (
        "SELECT id, e AS f FROM made"
    ),
}
"""Left joins of a generator, and what they mean: Spark's optimiser takes them for inner ones, and loses rows."""

MADE = "WITH made AS (SELECT id, p, e FROM t LATERAL VIEW OUTER posexplode(xs) AS p, e) "


@pytest.fixture
def flow(spark: SparkSession, tmp_path: Path) -> Iterator[hf.Flow]:
    with hf.Flow("read", log=tmp_path / "log", spark=spark, partitions=2) as made:
        made.input("t", "id bigint, xs array<int>")
        made.input("u", "n bigint")
        yield made


def rows(frame: DataFrame) -> Counter[str]:
    return Counter(repr(tuple(row)) for row in frame.collect())


def test_what_a_reader_thought_of_is_what_spark_says(flow: hf.Flow, spark: SparkSession) -> None:
    wrong: dict[str, Any] = {}
    views = {f"v{number}": text for number, text in enumerate([*STATEMENTS.values(), *PADDED])}
    refused = set()
    for name, text in views.items():
        try:
            flow.view(name, text)
        except hf.Unsupported:
            refused.add(text)
    assert refused <= PADDED.keys()
    t, u = flow.input("t", "id bigint, xs array<int>"), flow.input("u", "n bigint")
    there: list[tuple[int, list[int] | None]] = []
    for come, gone in (
        ([(1, [5]), (2, []), (3, None)], []),
        ([(1, []), (4, [7, None])], [(1, [5])]),
    ):
        t.insert(come)
        t.delete(gone)
        there = [row for row in [*there, *come] if row not in gone]
        u.insert([(n,) for n in (range(1, 400) if len(there) == 3 else [2, 500])])
        flow.step()
        spark.createDataFrame(there, "id bigint, xs array<int>").createOrReplaceTempView("t")
        numbers = [*range(1, 400), *([2, 500] if len(there) > 3 else [])]
        spark.createDataFrame([(n,) for n in numbers], "n bigint").createOrReplaceTempView("u")
        for name, text in views.items():
            if text in refused:
                continue
            meant = MADE + PADDED[text] if text in PADDED else text
            if (found := rows(flow.read(name))) != (expected := rows(spark.sql(meant))):
                wrong[text] = {"too many": found - expected, "lacking": expected - found}
    for name in ("t", "u"):
        spark.catalog.dropTempView(name)
    assert not wrong, wrong


def test_a_subquery_of_two_rows_that_do_not_match_is_an_error(flow: hf.Flow) -> None:
    flow.view(
        "v",
        "SELECT id, (SELECT coalesce(a, b) FROM (SELECT max(n) AS a FROM u) x FULL JOIN (SELECT max(id) AS b FROM t) y "
        "ON x.a = y.b) AS m FROM t",
    )
    flow.input("t", "id bigint, xs array<int>").insert([(5, [])])
    numbers = flow.input("u", "n bigint")
    numbers.insert([(5,)])
    flow.step()
    assert rows(flow.read("v")) == Counter([repr((5, 5))])
    numbers.insert([(6,)])
    with pytest.raises(hf.HoldfastError, match="More than one row returned by a subquery"):
        flow.step()


def test_files_that_are_read_otherwise_are_others(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("1\n2\n")
    with hf.Flow("options", log=tmp_path / "log", spark=spark, partitions=1) as flow:
        for name, header in (("with_header", "true"), ("without", "false")):
            frame = spark.read.csv(str(tmp_path / "some.csv"), schema="x string", header=header == "true")
            flow.view(name, frame.groupBy().count())
        flow.step()
        assert [flow.read(name).collect()[0][0] for name in ("with_header", "without")] == [1, 2]


@pytest.mark.parametrize("setting", ["jsonGenerator.ignoreNullFields", "legacy.disableMapKeyNormalization"])
def test_a_session_that_means_other_sql_is_refused(spark: SparkSession, tmp_path: Path, setting: str) -> None:
    own = spark.newSession()
    usual = own.conf.get(f"spark.sql.{setting}")
    own.conf.set(f"spark.sql.{setting}", "false" if usual == "true" else "true")
    with pytest.raises(hf.DeclarationError, match=setting.replace(".", r"\.")):
        hf.Flow("means", log=tmp_path / "log", spark=own).input("t", "id long")
        flow = hf.Flow("means", log=tmp_path / "log", spark=own)
        flow.input("t", "id long")
        flow.view("v", "SELECT id FROM t")
