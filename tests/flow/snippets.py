"""DataFrame code as PySpark's users write it: each function takes two DataFrames and gives one.

``people(name, dept, salary, age, city, hired, skills, home)`` and ``depts(dept, title, budget)``. Nothing here knows of
Holdfast. Results are certain: where rows are picked by order, the order has every column that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pandas as pd
import pyspark.sql.functions as F
from pyspark.sql import DataFrame, Window
from pyspark.sql.functions import (
    array_contains,
    avg,
    coalesce,
    col,
    collect_set,
    concat_ws,
    count,
    countDistinct,
    date_format,
    datediff,
    dense_rank,
    desc,
    explode,
    expr,
    lag,
    lit,
    lower,
    pandas_udf,
    rank,
    regexp_replace,
    row_number,
    split,
    to_date,
    trim,
    udf,
    upper,
    when,
    year,
)
from pyspark.sql.functions import max as max_
from pyspark.sql.functions import sum as sum_
from pyspark.sql.types import DecimalType, DoubleType, IntegerType, LongType, StringType

Snippet = Callable[[DataFrame, DataFrame], DataFrame]
SNIPPETS: dict[str, Snippet] = {}


def snippet(function: Snippet) -> Snippet:
    SNIPPETS[function.__name__] = function
    return function


# -- rows and columns ----------------------------------------------------------------------------------------------


@snippet
def select_names(people, depts):
    return people.select("name", "salary")


@snippet
def select_columns(people, depts):
    return people.select(people.name, people["age"], col("salary") * 1.1)


@snippet
def select_star_and_more(people, depts):
    return people.select("*", (people.age + 1).alias("next_age"))


@snippet
def select_list(people, depts):
    wanted = [c for c in people.columns if c not in ("skills", "home")]
    return people.select(wanted)


@snippet
def filter_by_column(people, depts):
    return people.filter(people.age > 30)


@snippet
def filter_by_text(people, depts):
    return people.filter("age > 30 AND city IS NOT NULL")


@snippet
def where_and_or_not(people, depts):
    return people.where((col("age") > 30) & ~(col("city") == "Oslo") | col("dept").isNull())


@snippet
def where_isin(people, depts):
    return people.where(col("city").isin("Oslo", "Bergen") | col("dept").isin(["dev"]))


@snippet
def where_between(people, depts):
    return people.where(people.salary.between(1000, 3000)).select("name")


@snippet
def where_like(people, depts):
    return people.where(col("name").like("A%") | col("name").rlike("b$") | col("name").contains("ar"))


@snippet
def where_startswith(people, depts):
    return people[people.name.startswith("A")].select("name", "city")


@snippet
def where_equal_null_safe(people, depts):
    return people.where(col("city").eqNullSafe(None)).select("name")


@snippet
def with_column(people, depts):
    return people.withColumn("bonus", col("salary") * 0.1).withColumn("total", col("salary") + col("bonus"))


@snippet
def with_column_replaced(people, depts):
    return people.withColumn("name", F.initcap(lower(col("name"))))


@snippet
def with_columns(people, depts):
    return people.withColumns({"upper": upper("name"), "senior": col("age") >= 40})


@snippet
def with_column_renamed(people, depts):
    return people.withColumnRenamed("name", "full_name").withColumnRenamed("dept", "department")


@snippet
def with_columns_renamed(people, depts):
    return people.withColumnsRenamed({"name": "n", "salary": "s"})


@snippet
def drop_columns(people, depts):
    return people.drop("skills", "home", "no_such_column")


@snippet
def drop_by_column(people, depts):
    return people.drop(people.skills).drop(col("home"))


@snippet
def to_df(people, depts):
    return depts.toDF("d", "t", "b")


@snippet
def select_expr(people, depts):
    return people.selectExpr("name", "salary / 12 AS monthly", "CASE WHEN age > 30 THEN 'old' ELSE 'young' END AS kind")


@snippet
def col_regex(people, depts):
    return people.select(people.colRegex("`(name|age)`"))


@snippet
def when_otherwise(people, depts):
    band = when(col("salary") > 3000, "high").when(col("salary") > 1500, "middle").otherwise("low")
    return people.select("name", band.alias("band"))


@snippet
def when_without_otherwise(people, depts):
    return people.withColumn("old", when(people.age > 40, lit(True))).select("name", "old")


@snippet
def casts(people, depts):
    return people.select(
        col("salary").cast("int").alias("a"),
        col("age").cast(StringType()).alias("b"),
        col("salary").cast(DecimalType(10, 2)).alias("c"),
        col("age").astype("double").alias("d"),
        col("hired").cast("timestamp").alias("e"),
    )


@snippet
def try_cast(people, depts):
    return people.select(col("name").try_cast("int").alias("n"), F.try_divide("salary", col("age") - 30).alias("d"))


@snippet
def literals(people, depts):
    return people.select("name", lit(1).alias("one"), lit("x").alias("x"), lit(None).cast("string").alias("none"))


@snippet
def arithmetic(people, depts):
    return people.select(
        (col("salary") - col("age") * 2).alias("a"),
        (-col("age")).alias("b"),
        (col("age") % 7).alias("c"),
        F.round(col("salary") / 7, 2).alias("d"),
        (col("age") / 2).alias("e"),
        F.pow(col("age"), 2).alias("f"),
        F.abs(30 - col("age")).alias("g"),
        F.floor(col("salary") / 1000).alias("h"),
    )


@snippet
def bits(people, depts):
    return people.select(
        col("age").bitwiseAND(7).alias("a"), F.shiftleft("age", 2).alias("b"), F.bit_count("age").alias("c")
    )


@snippet
def null_functions(people, depts):
    return people.select(
        coalesce("city", "dept", lit("?")).alias("a"),
        F.nvl("dept", lit("none")).alias("b"),
        col("city").isNull().alias("c"),
        F.nullif("city", lit("Oslo")).alias("d"),
        F.greatest("age", lit(33)).alias("e"),
        F.least("age", F.length("name")).alias("f"),
    )


@snippet
def texts(people, depts):
    return people.select(
        concat_ws(", ", "name", "city").alias("a"),
        trim(regexp_replace("name", "[aeiou]", "*")).alias("b"),
        F.substring("name", 1, 2).alias("c"),
        col("name").substr(2, 3).alias("d"),
        F.lpad("name", 8, ".").alias("e"),
        F.format_string("%s is %d", "name", "age").alias("f"),
        F.instr("name", "a").alias("g"),
        F.translate("name", "abc", "xyz").alias("h"),
        F.regexp_extract("name", "(.)(.*)", 2).alias("i"),
        F.reverse("name").alias("j"),
        F.concat(col("name"), lit("-"), col("dept")).alias("k"),
    )


@snippet
def hashes(people, depts):
    return people.select(F.md5("name").alias("a"), F.sha2("name", 256).alias("b"), F.hash("name", "age").alias("c"))


@snippet
def dates(people, depts):
    return people.select(
        year("hired").alias("y"),
        F.month("hired").alias("m"),
        F.dayofweek("hired").alias("w"),
        date_format("hired", "yyyy/MM").alias("f"),
        datediff(lit("2024-01-01").cast("date"), "hired").alias("d"),
        F.date_add("hired", 10).alias("a"),
        F.add_months("hired", 1).alias("b"),
        F.last_day("hired").alias("l"),
        F.trunc("hired", "month").alias("t"),
        to_date(lit("2020-02-03")).alias("c"),
        F.months_between(lit("2024-01-01").cast("date"), "hired").alias("n"),
    )


@snippet
def date_condition(people, depts):
    return people.where(col("hired") >= "2020-01-01").where(F.quarter("hired") != 2).select("name", "hired")


@snippet
def struct_fields(people, depts):
    return people.select("name", "home.street", col("home.zip").alias("zip"), people.home.getField("street").alias("s"))


@snippet
def struct_made(people, depts):
    return people.select(F.struct("name", "age").alias("who"), F.to_json(F.struct("name", "city")).alias("json"))


@snippet
def with_field(people, depts):
    return people.select("name", col("home").withField("zip", col("home.zip") + 1).alias("home"))


@snippet
def arrays(people, depts):
    return people.select(
        F.size("skills").alias("a"),
        array_contains("skills", "sql").alias("b"),
        F.array_join("skills", "+").alias("c"),
        F.sort_array("skills").alias("d"),
        F.array_union("skills", F.array(lit("x"))).alias("e"),
        F.get("skills", lit(0)).alias("f"),
        F.try_element_at("skills", lit(1)).alias("g"),
        F.slice("skills", 1, 2).alias("h"),
        F.array_distinct("skills").alias("i"),
    )


@snippet
def higher_order(people, depts):
    return people.select(
        F.transform("skills", lambda s: upper(s)).alias("a"),
        F.filter("skills", lambda s: F.length(s) > 3).alias("b"),
        F.exists("skills", lambda s: s == "sql").alias("c"),
        F.aggregate("skills", lit(0), lambda total, s: total + F.length(s)).alias("d"),
    )


@snippet
def maps(people, depts):
    made = F.create_map(lit("name"), col("name"), lit("city"), col("city"))
    return people.select(
        made["city"].alias("city"),
        F.map_keys(made).alias("k"),
        F.map_from_arrays(F.array(lit("a")), F.array("age")).alias("m"),
    )


@snippet
def json_parsed(people, depts):
    text = F.format_string('{"n": "%s", "v": [%d, 1]}', "name", "age")
    parsed = people.select(F.from_json(text, "n string, v array<int>").alias("j"))
    return parsed.select("j.n", col("j.v")[0].alias("v"))


@snippet
def exploded(people, depts):
    return people.select("name", explode("skills").alias("skill"))


@snippet
def exploded_outer(people, depts):
    return people.withColumn("skill", F.explode_outer("skills")).drop("skills", "home")


@snippet
def posexploded(people, depts):
    return people.select("name", F.posexplode("skills").alias("at", "skill"))


@snippet
def exploded_words(people, depts):
    return people.select(explode(split(col("name"), "")).alias("letter")).groupBy("letter").count()


@snippet
def exploded_map(people, depts):
    return people.select("name", explode(F.create_map(lit("age"), "age", lit("zip"), "home.zip")).alias("k", "v"))


@snippet
def stacked(people, depts):
    return people.selectExpr("name", "stack(2, 'age', age, 'length', length(name)) AS (what, value)")


@snippet
def expression_texts(people, depts):
    return people.select(expr("upper(name) AS u"), expr("salary BETWEEN 1000 AND 2000 AS b")).where(expr("u > 'B'"))


# -- groups --------------------------------------------------------------------------------------------------------


@snippet
def group_count(people, depts):
    return people.groupBy("dept").count()


@snippet
def group_count_ordered(people, depts):
    return people.groupBy("city").count().orderBy(desc("count"), "city").limit(2)


@snippet
def group_agg(people, depts):
    return people.groupBy("dept").agg(
        avg("salary").alias("mean"), max_("age").alias("oldest"), count("*").alias("n"), F.min("hired").alias("first")
    )


@snippet
def group_agg_dict(people, depts):
    return people.groupBy("dept").agg({"salary": "max", "age": "min", "*": "count"})


@snippet
def group_shorthand(people, depts):
    return people.groupBy("dept").sum("age")


@snippet
def group_shorthand_mean(people, depts):
    return people.groupby("city").mean("age", "salary")


@snippet
def group_by_expression(people, depts):
    return people.groupBy(year("hired").alias("year"), (col("age") > 30).alias("over")).agg(sum_("salary").alias("s"))


@snippet
def group_having(people, depts):
    return people.groupBy("dept").agg(count("*").alias("n")).where(col("n") > 1)


@snippet
def agg_without_group(people, depts):
    return people.agg(F.min("age"), F.max("age"), F.avg("salary"))


@snippet
def agg_of_expressions(people, depts):
    return people.groupBy("dept").agg(
        sum_(when(col("age") > 30, 1).otherwise(0)).alias("over"),
        (sum_("salary") / count("*")).alias("mean"),
        F.round(F.stddev("age"), 6).alias("sd"),
    )


@snippet
def count_distinct(people, depts):
    return people.groupBy("dept").agg(countDistinct("city").alias("a"), F.count_distinct("city", "age").alias("b"))


@snippet
def sum_distinct(people, depts):
    return people.agg(F.sum_distinct("age").alias("s"), F.approx_count_distinct("city").alias("n"))


@snippet
def collected(people, depts):
    return people.groupBy("dept").agg(
        F.sort_array(collect_set("city")).alias("cities"), F.array_sort(F.collect_list("name")).alias("names")
    )


@snippet
def max_by(people, depts):
    return people.groupBy("dept").agg(F.max_by("name", F.struct("salary", "name")).alias("best"))


@snippet
def count_if(people, depts):
    return people.groupBy("dept").agg(F.count_if(col("city").isNotNull()).alias("n"), F.bool_or(col("age") > 40))


@snippet
def percentiles(people, depts):
    return people.groupBy("dept").agg(F.median("age").alias("m"), F.percentile("salary", 0.25).alias("q"))


@snippet
def correlations(people, depts):
    return people.agg(F.corr("age", "salary").alias("c"), F.covar_pop("age", "salary").alias("p"), F.var_pop("age"))


@snippet
def first_not_null(people, depts):
    return people.groupBy("name", "age", "salary", "hired").agg(F.first("name", ignorenulls=True).alias("f"))


@snippet
def listagg(people, depts):
    return people.groupBy("dept").agg(F.listagg_distinct("city", lit(",")).alias("n")).select("dept")


@snippet
def pivoted(people, depts):
    return people.groupBy("dept").pivot("city", ["Oslo", "Bergen"]).agg(sum_("salary"))


@snippet
def pivoted_count(people, depts):
    return people.groupBy("city").pivot("dept", ["dev", "ops"]).count()


@snippet
def pivoted_twice(people, depts):
    return people.groupBy("dept").pivot("city", ["Oslo"]).agg(max_("age").alias("oldest"), count("age").alias("n"))


@snippet
def rolled_up(people, depts):
    return people.rollup("dept", "city").agg(count("*").alias("n"), F.grouping_id().alias("level"))


@snippet
def cubed(people, depts):
    return people.cube("dept", "city").agg(sum_("salary").alias("s"))


@snippet
def grouping_sets(people, depts):
    return people.groupingSets([["dept"], ["city"], []], "dept", "city").agg(count("*").alias("n"))


@snippet
def unpivoted(people, depts):
    return people.unpivot(["name"], ["age", "salary"], "what", "value")


@snippet
def melted(people, depts):
    return depts.melt("dept", ["budget"], "what", "value")


@snippet
def windowed_by_time(people, depts):
    return people.groupBy(F.window(col("hired").cast("timestamp"), "30 days")).count().select("window.start", "count")


# -- distinct rows, missing values ---------------------------------------------------------------------------------


@snippet
def distinct(people, depts):
    return people.select("dept", "city").distinct()


@snippet
def drop_duplicates(people, depts):
    return people.select("dept", "city").dropDuplicates()


@snippet
def drop_duplicates_by_key(people, depts):
    return people.select("dept", "city").dropDuplicates(["dept"]).select("dept")


@snippet
def dropna(people, depts):
    return people.dropna()


@snippet
def na_drop_subset(people, depts):
    return people.na.drop(subset=["city"]).na.drop(how="all", subset=["dept", "city"])


@snippet
def fillna(people, depts):
    return people.fillna({"city": "nowhere", "age": 0})


@snippet
def na_fill(people, depts):
    return people.na.fill("?").na.fill(0)


@snippet
def na_replace(people, depts):
    return people.na.replace(["Oslo", "Bergen"], ["OSL", "BGO"], "city")


@snippet
def replace_dict(people, depts):
    return people.replace({"dev": "development"}, subset=["dept"])


# -- joins ---------------------------------------------------------------------------------------------------------


@snippet
def join_on_name(people, depts):
    return people.join(depts, "dept")


@snippet
def join_on_names_left(people, depts):
    return people.join(depts, ["dept"], "left")


@snippet
def join_on_condition(people, depts):
    return people.join(depts, people.dept == depts.dept).select(people.name, depts.title)


@snippet
def join_right(people, depts):
    return people.join(depts, people["dept"] == depts["dept"], "right").select("name", depts["dept"], "title")


@snippet
def join_outer(people, depts):
    return people.join(depts, on="dept", how="outer").select("dept", "name", "title")


@snippet
def join_full_condition(people, depts):
    both = (people.dept == depts.dept) & (people.salary > depts.budget)
    return people.join(depts, both, "fullouter").select("name", "title")


@snippet
def join_semi(people, depts):
    return people.join(depts, "dept", "left_semi")


@snippet
def join_anti(people, depts):
    return people.join(depts, "dept", "leftanti").select("name", "dept")


@snippet
def join_cross(people, depts):
    return people.select("name").crossJoin(depts.select("title"))


@snippet
def join_broadcast(people, depts):
    return people.join(F.broadcast(depts), "dept").select("name", "budget")


@snippet
def join_range(people, depts):
    return people.join(depts, people.salary < depts.budget).select("name", "title")


@snippet
def join_of_lists(people, depts):
    return people.join(depts, [people.dept == depts.dept, people.age > 30]).select("name", "title")


@snippet
def self_join_by_alias(people, depts):
    a, b = people.alias("a"), people.alias("b")
    pairs = a.join(b, (col("a.city") == col("b.city")) & (col("a.name") < col("b.name")))
    return pairs.select(col("a.name").alias("one"), col("b.name").alias("other"))


@snippet
def self_join_with_aggregate(people, depts):
    means = people.groupBy("dept").agg(avg("salary").alias("mean"))
    return people.join(means, "dept").where(col("salary") > col("mean")).select("name", "dept")


@snippet
def join_then_group(people, depts):
    return people.join(depts, "dept").groupBy("title").agg(sum_("salary").alias("paid"), F.first("budget").alias("b"))


@snippet
def join_chain(people, depts):
    cities = people.groupBy("city").agg(count("*").alias("inhabitants"))
    return people.join(depts, "dept", "left").join(cities, "city", "left").select("name", "title", "inhabitants")


@snippet
def lateral_join(people, depts):
    counted = depts.where(col("dept") == col("p.dept").outer()).select(count("*").alias("n"))
    return people.alias("p").lateralJoin(counted).select("name", "n")


@snippet
def exists_subquery(people, depts):
    return people.alias("p").where(depts.where(col("dept") == col("p.dept").outer()).exists()).select("name")


# -- sets of rows --------------------------------------------------------------------------------------------------


@snippet
def union(people, depts):
    return people.select("dept").union(depts.select("dept"))


@snippet
def union_by_name(people, depts):
    left, right = people.select("name", "dept"), depts.select("dept", col("title").alias("name"))
    return left.unionByName(right)


@snippet
def union_by_name_with_missing(people, depts):
    return people.select("name", "dept").unionByName(depts, allowMissingColumns=True)


@snippet
def union_distinct(people, depts):
    return people.select("dept").union(depts.select("dept")).distinct()


@snippet
def intersected(people, depts):
    return people.select("dept").intersect(depts.select("dept"))


@snippet
def intersected_all(people, depts):
    return people.select("dept").intersectAll(depts.select("dept"))


@snippet
def subtracted(people, depts):
    return people.select("dept").subtract(depts.select("dept"))


@snippet
def except_all(people, depts):
    return people.select("dept").exceptAll(depts.select("dept"))


# -- order and windows ---------------------------------------------------------------------------------------------


@snippet
def order_and_limit(people, depts):
    return people.select("name", "salary").orderBy(col("salary").desc(), "name").limit(3)


@snippet
def sort_nulls_last(people, depts):
    return people.select("city", "name").sort(col("city").asc_nulls_last(), desc("name")).limit(4)


@snippet
def order_without_limit(people, depts):
    return people.orderBy("age", ascending=False).select("name", "age")


@snippet
def offset_and_limit(people, depts):
    return people.select("name", "age").orderBy("age", "name").offset(1).limit(2)


def ranked():
    return Window.partitionBy("dept").orderBy(col("salary").desc(), "name", "age", "hired")


@snippet
def window_row_number(people, depts):
    return people.withColumn("rn", row_number().over(ranked())).where(col("rn") <= 2).select("name", "dept", "rn")


@snippet
def window_ranks(people, depts):
    by_age = Window.partitionBy("dept").orderBy("age")
    return people.select("name", rank().over(by_age).alias("r"), dense_rank().over(by_age).alias("d"))


@snippet
def window_lag_lead(people, depts):
    return people.select(
        "name", (col("salary") - lag("salary", 1).over(ranked())).alias("less"), F.lead("name", 1, "-").over(ranked())
    )


@snippet
def window_running_sum(people, depts):
    running = ranked().rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return people.withColumn("running", sum_("salary").over(running)).select("name", "running")


@snippet
def window_moving_average(people, depts):
    return people.select("name", avg("age").over(ranked().rowsBetween(-1, 1)).alias("moving"))


@snippet
def window_range(people, depts):
    near = Window.partitionBy("city").orderBy("age").rangeBetween(-5, 5)
    return people.select("name", count("*").over(near).alias("n"))


@snippet
def window_of_partition(people, depts):
    whole = Window.partitionBy("dept")
    return people.withColumn("share", col("salary") / sum_("salary").over(whole)).select("name", "share")


@snippet
def window_first_last(people, depts):
    return people.select("name", F.first("name").over(ranked()).alias("best"), F.ntile(2).over(ranked()).alias("half"))


@snippet
def window_percent_rank(people, depts):
    by_age = Window.partitionBy("city").orderBy("age")
    return people.select("name", F.percent_rank().over(by_age).alias("p"), F.cume_dist().over(by_age).alias("c"))


@snippet
def window_latest(people, depts):
    latest = Window.partitionBy("city").orderBy(desc("hired"), "name", "age", "salary")
    return people.withColumn("n", row_number().over(latest)).filter("n = 1").drop("n", "skills", "home")


# -- users' functions, and code in pieces --------------------------------------------------------------------------


@udf(returnType=StringType())
def initials(name):
    return None if name is None else "".join(part[0] for part in name.split() if part)


@snippet
def udf_decorated(people, depts):
    return people.select("name", initials("name").alias("initials"))


@snippet
def udf_lambda(people, depts):
    double_it = udf(lambda x: None if x is None else x * 2, LongType())
    return people.withColumn("twice", double_it(col("age"))).select("name", "twice")


@snippet
def udf_in_condition(people, depts):
    is_long = udf(lambda s: s is not None and len(s) > 3, "boolean")
    return people.where(is_long("name")).groupBy("dept").agg(count("*").alias("n"))


@pandas_udf(DoubleType())
def celsius(values: pd.Series) -> pd.Series:
    return (values - 32) * 5 / 9


@snippet
def pandas_function(people, depts):
    return people.select("name", celsius(col("salary").cast("double")).alias("c"))


@pandas_udf(LongType())
def lengths(texts: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for each in texts:
        yield each.str.len()


@snippet
def pandas_function_over_parts(people, depts):
    return people.where("name IS NOT NULL").select(lengths("name").alias("n"))


def with_band(df):
    return df.withColumn("band", (col("salary") / 1000).cast(IntegerType()))


def only(city):
    return lambda df: df.where(col("city") == city)


@snippet
def transformed(people, depts):
    return people.transform(with_band).transform(only("Oslo")).select("name", "band")


@snippet
def built_in_a_loop(people, depts):
    for name in ("age", "salary"):
        people = people.withColumn(f"{name}_missing", col(name).isNull())
    return people.select([col(c).alias(c.upper()) for c in people.columns if c.endswith("missing")])


@snippet
def reused(people, depts):
    young, old = people.where("age <= 30"), people.where("age > 30")
    counts = young.agg(count("*").alias("n")).withColumn("kind", lit("young"))
    return counts.union(old.agg(count("*").alias("n")).withColumn("kind", lit("old")))


@snippet
def repartitioned_and_hinted(people, depts):
    return people.repartition(4, "dept").hint("broadcast").coalesce(1).select("name", "dept")


@snippet
def conditional_aggregation(people, depts):
    cities = ["Oslo", "Bergen"]
    return people.groupBy("dept").agg(*[sum_((col("city") == c).cast("int")).alias(f"in_{c}") for c in cities])


@snippet
def scalar_subquery(people, depts):
    return people.where(col("salary") > people.agg(avg("salary")).scalar()).select("name")


@snippet
def sized_differently(people, depts):
    return people.select(F.length("name").cast(DoubleType()).alias("n")).where("n > 3").agg(sum_("n").alias("s"))
