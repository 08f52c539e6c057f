"""Expressions of Spark's plans: what was computed natively still is, and what is not crosses as Spark's own."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.plan.expression import SparkExpression, readable, sql
from holdfast.plan.nodes import Field, Linear, Source
from holdfast.plan.schema import parse_schema
from holdfast.testing import stopped_clock

from ...planned import expression, expressions, plan_sql
from .keeping import check, numbered, refused

ORDERS = Source(
    "o", parse_schema("id bigint, k int, u string, amount double, n decimal(10,2), d date, ts timestamp", subject="o")
)


def names(*texts: str) -> list[str]:
    """What the expressions are called in Spark's own queries."""
    return [sql(each) for each in expressions(texts, ORDERS.fields)]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("id = 1", "`id` = 1L"),
        ("amount > 1", "`amount` > 1.0D"),
        ("k / 2", "CAST(`k` AS double) / 2.0D"),
        ("n + 1", "`n` + 1"),
        ("n > 1", "`n` > 1.00"),
        ("1.50 * n", "1.50 * `n`"),
        ("k != 1", "NOT `k` = 1"),
        ("k NOT IN (1, 2)", "NOT `k` IN (1, 2)"),
        ("k BETWEEN 1 AND 2", "`k` >= 1 AND `k` <= 2"),
        ("CASE k WHEN 1 THEN 'x' END", "CASE WHEN `k` = 1 THEN 'x' END"),
        ("d > '2024-01-01'", "`d` > DATE '2024-01-01'"),
        ("d >= date '2024-01-31' + interval 1 month", "`d` >= DATE '2024-02-29'"),
        ("ts = '2024-01-01'", "`ts` = TIMESTAMP '2024-01-01 00:00:00.000000Z'"),
        ("ts + interval 90 minutes", "`ts` + INTERVAL '90' MINUTE"),
        ("year(d)", "year(`d`)"),
        ("substring(u, 1, 1 + 1)", "substring(`u`, 1, 2)"),
        ("k > 60 * 60 - 1", "`k` > 3599"),
        ("nullif(k, 1)", "if(`k` = 1, NULL, `k`)"),
        ("bigint(k) + 1L", "CAST(`k` AS bigint) + 1L"),
        ("-9223372036854775808 < id", "-9223372036854775808L < `id`"),
    ],
)
def test_an_expression_has_one_text_with_all_casts(written: str, meant: str) -> None:
    assert readable(expression(written, ORDERS.fields)) == meant


def test_what_gives_null_instead_of_failing_is_never_written_as_what_fails() -> None:
    for each in ("try_cast(u AS int)", "try_add(k, 1)", "try_divide(k, 2)", "try_cast(id AS int)", "cast(u AS int)"):
        assert isinstance(expression(each, ORDERS.fields), SparkExpression), each
    both = names("try_cast(id AS int)", "cast(id AS int)", "coalesce(try_add(k, 1), 0)", "coalesce(k + 1, 0)")
    assert len(set(both)) == 4


def test_equal_expressions_have_one_name_and_others_another() -> None:
    one = "transform(sequence(1, k), x -> x + k)"
    first = names(one, "upper(u) || x'01ff'", "coalesce(upper(u) between 'a' and 'b', false)")
    other = "transform(sequence(1, j), y -> y + j)"
    again = plan_sql("v", f"SELECT {other} AS x FROM (SELECT k AS j FROM o)", {"o": ORDERS})
    assert isinstance(again, Linear)
    assert sql(again.outputs[0].expression).split("(")[0] == first[0].split("(")[0]
    assert names(one, "upper(u) || x'01ff'", "coalesce(upper(u) between 'a' and 'b', false)") == first
    different = names(
        "u LIKE 'a!%' ESCAPE '!'", "u LIKE 'a!%' ESCAPE '#'", "upper(u) || x'01ff'", "upper(u) || x'01fe'",
        "abs(k)", "abs(id)", "abs(amount)", "transform(array(k), x -> x + 1)", "transform(array(k), x -> x + 2)",
    )  # fmt: skip
    assert len({each.split("(")[0] for each in different}) == len(different)


def test_legacy_arithmetic_stays_sparks(spark: SparkSession) -> None:
    from holdfast.frontend.catalyst.convert import convert
    from holdfast.frontend.catalyst.statement import Statement
    from holdfast.spark.analysed_query import Analysed
    from holdfast.spark.statements import analysis

    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", "false")
    frame = session.createDataFrame([], "k int").alias("holdfast:o")
    node = Source("o", (Field("k", "int"),))
    for verb, native in ((frame.selectExpr("k + 1 AS x"), False), (frame.selectExpr("k = 1 AS x"), True)):
        analysed = Analysed(session, analysis(session, verb._jdf.queryExecution().analyzed()), "view 'v'", {})
        plan, _ = convert(Statement("v", analysed, {}), analysed.plan, {"o": node})
        assert isinstance(plan, Linear)
        assert isinstance(plan.outputs[0].expression, SparkExpression) != native


def test_expressions_that_are_not_native_are_kept_as_spark_computes_them(spark: SparkSession, tmp_path: Path) -> None:
    check(
        spark,
        tmp_path,
        numbered(
            "select id,transform(xs, x -> x + k) t, filter(xs, x -> x > k) f, aggregate(xs, 0, (a, x) -> a + x) from o",
            "select id, m['a'] a, named_struct('q', id, 'z', u).q q, get(xs, 0) x, map_keys(m) k, to_json(m) j from o",
            "select id,try_cast(u as int) a, try_divide(k, 0) b, try_add(k, 2147483647) c, try_to_number(u,'9') from o",
            "select id,'it''s' a, 'tab\\tx' b, 'back\\\\slash' c, '${u}' d, x'01ff' e, double('NaN') f, -0.0D g from o",
            "select id, 1e10 a, 1.5f b, 2S c, 12345678901234567890 d, array(1, null) e, map('a', 1) f, null g from o",
            "select id, u collate utf8_lcase = 'ADA' a, u like 'a#%' escape '#' b, u rlike '^a' c from o",
            "select * from o where lower(u collate unicode_ci) = 'ADA' or nullif(upper(u), 'BOB') is null",
            "select id, d - date '2024-01-01' a, ts - timestamp '2024-01-01' b, interval 3 days c from o",
            "select ts - timestamp '2024-01-01' gap, count(*) n from o group by all",
            "select id, cast(ts as timestamp_ntz) a, timestamp_ntz '2024-01-01 00:00:00' b, year(ts) c from o",
            "select id, parse_json(js):a::int a, variant_get(parse_json(js), '$.b', 'string') b from o",
            "select id, ts + interval 26 hours a, ts - interval '1 02:03:04.5' day to second b, d + interval 1 month,"
            " d - 3 e, timestampadd(HOUR, 30, ts) f, dateadd(DAY, 2, d) g, last_day(d) h from o",
            "select id, convert_timezone('Europe/Paris', cast(ts as timestamp_ntz)) c, date_format(ts, 'HH') h from o",
            "select id, coalesce(upper(u) between 'a' and 'B', false) a, greatest(k, 1, id) b, hash(u, k) c from o",
        ),
    )


@pytest.mark.parametrize(
    ("expression", "column", "function", "advice"),
    [
        ("upper(current_user())", 14, "current_user", "write the name as a text"),
        ("concat(u, current_timezone())", 18, "current_timezone", "write the time zone as a text"),
        ("input_file_name()", 8, "input_file_name", "put the name into the data"),
        ("monotonically_increasing_id()", 8, "monotonically_increasing_id", "use uuid() for a key"),
        ("spark_partition_id()", 8, "spark_partition_id", "use uuid() for a key"),
        ("uniform(1, 5)", 8, "uniform", "rand() or uuid()"),
        ("randstr(3)", 8, "randstr", "rand() or uuid()"),
        ("shuffle(xs)", 8, "shuffle", "rand() or uuid()"),
        ("reflect('java.util.UUID', 'randomUUID')", 8, "java_method", "hf.nondeterministic"),
        ("current_time()", 8, "current_time", "current_timestamp()"),
        ("current_catalog()", 8, "current_catalog", "write it as a text"),
        ("aes_encrypt(u, '0123456789abcdef')", 8, "aes_encrypt", "the IV"),
    ],
)
def test_what_a_replay_would_not_repeat_is_refused(
    spark: SparkSession, tmp_path: Path, expression: str, column: int, function: str, advice: str
) -> None:
    error = refused(spark, tmp_path, f"select {expression} as x from o")
    assert error.fields["construct"] == f"the nondeterministic function {function}"
    assert (error.fields["line"], error.fields["column"]) == (1, column)
    assert advice in str(error)


def test_a_draw_inside_a_lambda_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    error = refused(spark, tmp_path, "select transform(xs, x -> x + rand()) as x from o")
    assert error.fields["construct"] == "rand in a lambda function"


def test_a_view_that_is_true_for_a_time_changes_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    """The shapes in which the clock is compared; what each means is checked against Spark in `tests/oracle`."""
    conditions = {
        "ts > now() - interval 1 hour": [1, 0],
        "now() - ts < interval 1 hour": [1, 0],
        "date_diff(current_date(), d) < 1": [1, 1],
        "current_date() - d <= interval 0 day": [1, 1],
        "ts between date_trunc('hour', now()) and now()": [1, 0],
        "ts > timestampadd(MINUTE, -90, current_timestamp)": [1, 1],
        "d >= trunc(current_date, 'MM')": [1, 1],
    }
    with (
        stopped_clock(datetime(2024, 3, 1, 12, 30, tzinfo=UTC)) as clock,
        hf.Flow("clocked", log=tmp_path, spark=spark, strategy="volatile") as flow,
    ):
        rows = flow.input("o", "d date, ts timestamp")
        for place, condition in enumerate(conditions):
            flow.view(f"v{place}", f"select * from o where {condition}")
        now = datetime(2024, 3, 1, 12, 30, tzinfo=UTC)
        rows.insert([(now.date(), now)])
        flow.step()
        found = [[len(flow.read(f"v{place}").collect())] for place in range(len(conditions))]
        clock.advance(minutes=61)
        flow.step()
        for place, each in enumerate(found):
            each.append(len(flow.read(f"v{place}").collect()))
    assert found == list(conditions.values())


@pytest.mark.parametrize(
    "condition", ["hour(now()) = 3", "ts > now() - interval 1 month", "ts > now() - make_interval(k)"]
)
def test_a_condition_on_the_clock_that_never_settles_is_refused(
    spark: SparkSession, tmp_path: Path, condition: str
) -> None:
    query = f"select id from o where k > 1 and {condition}"
    error = refused(spark, tmp_path, query)
    assert error.fields["construct"] == "this condition on the current time in WHERE"
    assert error.fields["column"] == query.index("now()") + 1
