"""Tables and DataFrames that are not the flow's: sources whose rows never change, found again by what they are."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import holdfast as hf
from holdfast.errors import DeclarationError, SqlError, Unsupported

SCHEMA = "id long, user string"
ROWS = [(1, "ada"), (2, "bob"), (3, "ada")]


def rows(frame: DataFrame) -> Counter[Any]:
    return Counter(map(tuple, frame.collect()))


def opened(spark: SparkSession, tmp_path: Path) -> tuple[hf.Flow, hf.Input]:
    flow = hf.Flow("statics", log=tmp_path / "log", spark=spark)
    return flow, flow.input("orders", SCHEMA)


def statics(flow: hf.Flow, view: str) -> list[str]:
    return sorted(flow._catalog.planned[view].statics)


def test_rows_in_the_text_are_views_and_join(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = opened(spark, tmp_path)
    with flow:
        flow.view("one", "SELECT 1 AS a, 'x' AS b")
        flow.view("listed", "SELECT * FROM VALUES (1, 'a'), (2, NULL), (2, NULL) AS t(n, s)")
        flow.view("none", "SELECT * FROM VALUES (1) AS t(n) WHERE n > 1")
        flow.view("counted", "SELECT count(*) AS n FROM VALUES (1), (2)")
        flow.view("joined", "SELECT id, s FROM orders LEFT JOIN VALUES (1, 'a'), (2, 'b') AS t(n, s) ON id = n")
        flow.view("both", "SELECT id FROM orders UNION ALL SELECT 7 UNION ALL SELECT id FROM range(2)")
        flow.view("chosen", "SELECT id FROM orders WHERE id IN (SELECT n FROM VALUES (1), (3) AS t(n))")
        orders.insert(ROWS)
        flow.step()
        assert rows(flow.read("one")) == Counter([(1, "x")])
        assert rows(flow.read("listed")) == Counter([(1, "a"), (2, None), (2, None)])
        assert rows(flow.read("none")) == Counter()
        assert rows(flow.read("counted")) == Counter([(2,)])
        assert rows(flow.read("joined")) == Counter([(1, "a"), (2, "b"), (3, None)])
        orders.delete(ROWS[:1])
        orders.insert([(2, "cyd")])
        flow.step()
        assert rows(flow.read("one")) == Counter([(1, "x")])
        assert rows(flow.read("joined")) == Counter([(2, "b"), (2, "b"), (3, None)])
        assert rows(flow.read("both")) == Counter([(2,), (2,), (3,), (7,), (0,), (1,)])
        assert rows(flow.read("chosen")) == Counter([(3,)])
        assert "source static row" in flow.explain("one")


def test_tables_files_and_dataframes_are_sources_by_what_they_are(spark: SparkSession, tmp_path: Path) -> None:
    levels = spark.createDataFrame([("ada", 1), ("bob", 2)], "user string, level int")
    levels.write.parquet(str(tmp_path / "levels"))
    levels.createOrReplaceTempView("named_levels")
    flow, orders = opened(spark, tmp_path)
    with flow:
        table = flow.table("orders")
        flow.view("from_rows", table.join(levels, "user"))
        flow.view("from_files", table.join(spark.read.parquet(str(tmp_path / "levels")), "user"))
        flow.view("from_view", "SELECT * FROM orders JOIN named_levels USING (user)")
        flow.view("from_range", table.join(spark.range(1, 3), "id"))
        orders.insert(ROWS)
        flow.step()
        expected = Counter([("ada", 1, 1), ("bob", 2, 2), ("ada", 3, 1)])
        for view in ("from_rows", "from_files", "from_view"):
            assert rows(flow.read(view)) == expected
        assert rows(flow.read("from_range")) == Counter(ROWS[:2])
        (of_rows,), (of_view,) = statics(flow, "from_rows"), statics(flow, "from_view")
        assert of_rows.startswith("static rows ") and of_view.startswith("static named_levels ")
        assert statics(flow, "from_files") == [f"static Parquet file:{tmp_path}/levels"]
        assert statics(flow, "from_range") == ["static range(1, 3, 1)"]
        assert f"source {of_view}(user, level)" in flow.explain("from_view")
        assert of_view in flow.status().to_dict()["sources"]


def test_a_flow_opened_again_finds_them_and_rebuilds_what_changed(spark: SparkSession, tmp_path: Path) -> None:
    def again(level: int) -> tuple[hf.Flow, hf.Input]:
        flow, orders = opened(spark, tmp_path)
        known = spark.createDataFrame([("bob", 2), ("ada", level)], "user string, level int").repartition(level)
        flow.view("joined", flow.table("orders").join(known.localCheckpoint(), "user").select("id", "level"))
        flow.view("listed", "SELECT * FROM VALUES (1), (2) AS t(n)")
        return flow, orders

    flow, orders = again(1)
    with flow:
        orders.insert(ROWS)
        flow.step()
    flow, orders = again(1)
    with flow:
        assert "nothing changes" in str(flow.plan())
        assert flow.step().idle
        orders.insert([(4, "bob")])
        flow.step()
        assert rows(flow.read("joined")) == Counter([(1, 1), (2, 2), (3, 1), (4, 2)])
        assert rows(flow.read("listed")) == Counter([(1,), (2,)])
    flow, orders = again(3)
    with flow:
        assert "rebuilds joined" in str(flow.plan())
        flow.step()
        assert rows(flow.read("joined")) == Counter([(1, 3), (2, 2), (3, 3), (4, 2)])


def test_one_that_several_views_read_is_read_once_and_stays_when_one_goes(spark: SparkSession, tmp_path: Path) -> None:
    flow, orders = opened(spark, tmp_path)
    with flow:
        for name in ("a", "b"):
            flow.view(name, f"SELECT id, n AS {name} FROM orders JOIN VALUES (1, 10) AS t(id, n) USING (id)")
        orders.insert(ROWS)
        flow.step()
        assert statics(flow, "a") == statics(flow, "b")
        flow.drop("a")
        flow.view("c", "SELECT sum(n) AS s FROM VALUES (1, 10) AS t(id, n)")
        flow.step()
        assert rows(flow.read("b")) == Counter([(1, 10)])
        assert rows(flow.read("c")) == Counter([(10,)])
        flow.drop("b").drop("c")
        flow.step()
        flow.view("b", "SELECT id, n AS b FROM orders JOIN VALUES (1, 10) AS t(id, n) USING (id)")
        flow.step()
        assert rows(flow.read("b")) == Counter([(1, 10)])


def test_odd_columns_and_types_of_a_static_table(spark: SparkSession, tmp_path: Path) -> None:
    flow, _ = opened(spark, tmp_path)
    with flow:
        twice = spark.createDataFrame([(1, 2)], "a int, b int").toDF("x", "X")
        flow.view("renamed", twice.toDF("p", "q"))
        flow.step()
        assert rows(flow.read("renamed")) == Counter([(1, 2)])
        with pytest.raises(SqlError, match="view 'long', line 1, column 15: type 'interval year' is not one"):
            flow.view("long", spark.sql("SELECT * FROM VALUES (INTERVAL '1' YEAR) AS t(i)"))
        with pytest.raises(SqlError, match="view 'long': type 'interval year' is not one"):
            flow.view("long", spark.sql("SELECT * FROM VALUES (INTERVAL '1' YEAR) AS t(i)").localCheckpoint())
        with pytest.raises(Unsupported, match="a streaming DataFrame is not supported"):
            flow.view("stream", spark.readStream.format("rate").load())


def test_a_table_of_the_catalog_keeps_its_name(spark: SparkSession, tmp_path: Path) -> None:
    def create(level: str) -> None:
        spark.sql("DROP TABLE IF EXISTS held_levels")
        place = f"USING parquet LOCATION '{tmp_path}/{level}'"
        spark.sql(f"CREATE TABLE held_levels {place} AS SELECT 'ada' AS user, {level} AS level")

    create("1")
    try:
        flow, orders = opened(spark, tmp_path)
        with flow:
            flow.view("joined", "SELECT id, level FROM orders JOIN held_levels USING (user)")
            assert statics(flow, "joined") == ["static spark_catalog.default.held_levels"]
            orders.insert(ROWS)
            flow.step()
            assert rows(flow.read("joined")) == Counter([(1, 1), (3, 1)])
            create("2.5")
            with pytest.raises(DeclarationError, match="has other columns than an earlier view found there"):
                flow.view("again", "SELECT id, level FROM orders JOIN held_levels USING (user)")
    finally:
        spark.sql("DROP TABLE IF EXISTS held_levels")


def name_of(spark: SparkSession, tmp_path: Path, query: str | DataFrame) -> str:
    """The name that the one static source of a query has."""
    flow, _ = opened(spark, tmp_path)
    with flow:
        flow.view("v", query)
        (found,) = statics(flow, "v")
        return found


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the time zone of the driver's Python process."""

    def put(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield put
    monkeypatch.undo()
    time.tzset()


def test_rows_in_the_text_are_the_same_in_a_process_of_another_time_zone(
    spark: SparkSession, tmp_path: Path, zone: Callable[[str], None]
) -> None:
    text = "SELECT * FROM VALUES (TIMESTAMP '2026-01-05 12:00:00', DATE '2026-01-05') AS t(at, day)"
    names = set()
    for each in ("UTC", "Asia/Tokyo", "America/New_York"):
        zone(each)
        names.add(name_of(spark, tmp_path, text))
    assert len(names) == 1
    zone("UTC")
    assert name_of(spark, tmp_path, text.replace("12:00", "21:00")) not in names


def test_the_names_of_rows_stay_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """A view is filled again when they change."""
    text = "SELECT * FROM VALUES (1, 'a', 1.5BD, ARRAY(1), MAP('k', 1.0D)), (2, NULL, NULL, NULL, NULL)"
    assert name_of(spark, tmp_path, text) == "static values 4641b333e5e0"
    rows_of_process = spark.createDataFrame([(1, "a"), (2, None)], "a int, b string").localCheckpoint()
    assert name_of(spark, tmp_path, rows_of_process) == "static rows a76585d5793f"


def test_days_and_times_outside_the_years_of_python_are_rows_in_the_text(spark: SparkSession, tmp_path: Path) -> None:
    flow, _ = opened(spark, tmp_path)
    with flow:
        flow.view("late", "SELECT CAST(d AS STRING) AS d FROM VALUES (DATE '+10183-01-01') AS t(d)")
        flow.view("later", "SELECT CAST(d AS STRING) AS d FROM VALUES (DATE '+10183-01-02') AS t(d)")
        flow.view("early", "SELECT CAST(at AS STRING) AS at FROM VALUES (TIMESTAMP '-0044-03-15 12:00:00') AS t(at)")
        flow.step()
        assert rows(flow.read("late")) == Counter([("+10183-01-01",)])
        assert rows(flow.read("later")) == Counter([("+10183-01-02",)])
        assert rows(flow.read("early")) == Counter([("-0044-03-15 12:00:00",)])


ALMOST = {
    "a field called interval": ("named_struct('interval_id', 'null')", "named_struct('interval_id', STRING(NULL))"),
    "a field called variant": ("named_struct('variant', 'null')", "named_struct('variant', STRING(NULL))"),
    "intervals": ("INTERVAL '1' DAY", "INTERVAL '2' DAY"),
    "no interval": ("INTERVAL '1' DAY", "CAST(NULL AS INTERVAL DAY)"),
    "intervals in lists": ("ARRAY(INTERVAL '1' DAY)", "ARRAY(INTERVAL '1' DAY, NULL)"),
    "variants": ("parse_json('1')", "parse_json('\"1\"')"),
    "no variant": ("parse_json('null')", "CAST(NULL AS VARIANT)"),
    "variants in structs": ("named_struct('v', parse_json('null'))", "named_struct('v', CAST(NULL AS VARIANT))"),
    "lists": ("ARRAY('a', 'b')", "ARRAY('a,b')"),
    "an empty list": ("CAST(ARRAY() AS ARRAY<INT>)", "CAST(NULL AS ARRAY<INT>)"),
    "bytes": ("X'00'", "X'0000'"),
    "zeros": ("0.0D", "-0.0D"),
    "a microsecond": ("TIMESTAMP '2026-01-05 12:00:00'", "TIMESTAMP '2026-01-05 12:00:00.000001'"),
}  # fmt: skip
"""What it is about → two values of one type."""


def test_rows_in_the_text_that_differ_are_two_sources(spark: SparkSession, tmp_path: Path) -> None:
    flow, _ = opened(spark, tmp_path)
    texts = {}
    with flow:
        for number, (about, values) in enumerate(ALMOST.items()):
            pair = [f"SELECT n, x FROM VALUES (1, {value}), (2, NULL) AS t(n, x)" for value in values]
            kinds = {spark.sql(text).schema["x"].dataType.simpleString() for text in pair}
            assert len(kinds) == 1, about
            texts[f"v{number}"] = f"SELECT n, CAST(x AS STRING) AS x FROM ({' UNION ALL '.join(pair)})"
            flow.view(f"v{number}", texts[f"v{number}"])
            assert len(statics(flow, f"v{number}")) == 2, about
            flow.view(f"again{number}", pair[0])
            assert set(statics(flow, f"again{number}")) < set(statics(flow, f"v{number}")), about
            flow.drop(f"again{number}")
        flow.step()
        for name, text in texts.items():
            assert rows(flow.read(name)) == rows(spark.sql(text)), text


def test_a_static_struct_with_two_fields_of_one_name_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    text = "SELECT n FROM VALUES (1, named_struct('k', 1, 'k', 2)) AS t(n, s)"
    flow, _ = opened(spark, tmp_path)
    with flow:
        for query in (text, spark.sql(text.replace("n FROM", "* FROM")).localCheckpoint()):
            with pytest.raises(Unsupported, match=r"view 'v'.*: a struct with two fields called 'k' is not supported"):
                flow.view("v", query)


def test_files_that_are_read_with_another_secret_are_the_same(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "some.csv").write_text("a\n1\n")

    def read(secret: str, separator: str = ";") -> DataFrame:
        own = spark.read.option("fs.s3a.secret.key", secret).option("fs.s3a.session.token", secret)
        return own.option("sep", separator).csv(str(tmp_path / "some.csv"), schema="a string", header=True)

    assert name_of(spark, tmp_path, read("old")) == name_of(spark, tmp_path, read("new"))
    assert name_of(spark, tmp_path, read("old")) != name_of(spark, tmp_path, read("old", ","))


def test_a_table_of_a_database_that_is_read_with_another_password_is_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    jvm: Any = spark.sparkContext._jvm
    jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    for place in ("one", "other"):
        made = spark.createDataFrame([("ada", 1)], "user string, level int").write
        made.jdbc(f"jdbc:derby:memory:{place};create=true", "APP.LEVELS", mode="overwrite")

    def read(password: str, place: str = "one", further: str = "") -> DataFrame:
        own = spark.read.option("user", f"user-{password}").option("password", password)
        return own.jdbc(f"jdbc:derby:memory:{place};user=ada;password={password}{further}", "APP.LEVELS")

    usual = name_of(spark, tmp_path, read("old"))
    assert usual == name_of(spark, tmp_path, read("new"))
    assert usual != name_of(spark, tmp_path, read("old", "other"))
    assert usual != name_of(spark, tmp_path, read("old", further=";territory=de_DE"))
    with hf.Flow("statics", log=tmp_path / "read", spark=spark) as flow:
        flow.view("v", read("old"))
        flow.step()
        assert rows(flow.read("v")) == Counter([("ada", 1)])
