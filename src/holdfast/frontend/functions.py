"""Spark's functions that are not plain scalars, by name.

Every other name is taken for a scalar function and passed to Spark as it is. So these lists must be complete: an
aggregate that is missing here would be computed row by row. They were read off Spark 4.3's function registry.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Aggregates that can be maintained, and the function of `plan.nodes.Call` that does it.
AGGREGATES = {
    "count": "count",
    "sum": "sum",
    "avg": "avg",
    "mean": "avg",
    "min": "min",
    "max": "max",
    "stddev": "stddev_samp",
    "stddev_samp": "stddev_samp",
    "std": "stddev_samp",
    "stddev_pop": "stddev_pop",
    "variance": "var_samp",
    "var_samp": "var_samp",
    "var_pop": "var_pop",
    "any_value": "any_value",
    "first": "any_value",
    "first_value": "any_value",
    "last": "any_value",
    "last_value": "any_value",
    "count_if": "count_if",
    "bool_and": "bool_and",
    "every": "bool_and",
    "bool_or": "bool_or",
    "any": "bool_or",
    "some": "bool_or",
    "skewness": "skewness",
    "kurtosis": "kurtosis",
    "covar_pop": "covar_pop",
    "covar_samp": "covar_samp",
    "bit_and": "bit_and",
    "bit_or": "bit_or",
    "bit_xor": "bit_xor",
    "collect_list": "collect_list",
    "array_agg": "collect_list",
    "collect_set": "collect_set",
    "mode": "mode",
    "median": "percentile",
    "percentile": "percentile",
    "percentile_cont": "percentile",
    "max_by": "max",
    "min_by": "min",
}

# What a row of the result is grouped by, where GROUP BY has several sets of keys.
GROUPING = _names("grouping grouping_id")

# To these it makes no difference whether each value counts once.
BLIND_TO_COPIES = _names("min max any_value bool_and bool_or bit_and bit_or collect_set")

OTHER_AGGREGATES = _names(
    """
    approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine bitmap_and_agg
    bitmap_construct_agg bitmap_or_agg collect_union corr count_min_sketch histogram_numeric hll_sketch_agg
    hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint
    kll_sketch_agg_double kll_sketch_agg_float listagg measure percentile_approx percentile_disc regr_avgx regr_avgy
    regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg string_agg
    theta_intersection_agg theta_sketch_agg theta_union_agg try_avg try_sum tuple_intersection_agg_double
    tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer tuple_union_agg_double
    tuple_union_agg_integer vector_avg vector_sum
    """
)

GENERATORS = _names(
    """
    collations explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer python_worker_logs
    sql_keywords stack variant_explode variant_explode_outer
    """
)

TIME_WINDOWS = frozenset(("window", "session_window", "window_time"))

WINDOW_FUNCTIONS = _names("counter_diff cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number")

# What can stand before OVER, and the function of `plan.nodes.WindowCall` that it is.
OVER = {
    **{name: name for name in WINDOW_FUNCTIONS if name != "counter_diff"},
    **{
        name: AGGREGATES[name]
        for name in _names("count sum avg mean min max stddev stddev_samp std stddev_pop variance var_samp var_pop")
    },
    **dict.fromkeys(("first", "first_value", "any_value"), "first_value"),
    **dict.fromkeys(("last", "last_value"), "last_value"),
}

# The clock and chance: drawn for each row that comes, and remembered (`frontend.draws`).
DRAWN = _names("curdate current_date current_timestamp localtimestamp now rand randn random unix_timestamp uuid")

# Another value at each call, each run, or each session, and not drawn: a replay would not repeat them.
NONDETERMINISTIC = _names(
    """
    current_catalog current_database current_path current_schema current_time current_timezone current_user
    input_file_block_length input_file_block_start input_file_name java_method localtime monotonically_increasing_id
    randstr reflect session_user shuffle spark_partition_id try_reflect uniform user
    """
)

# What to write instead.
INSTEAD = {
    **dict.fromkeys(("current_time", "localtime"), "use current_timestamp() or localtimestamp()"),
    **dict.fromkeys(("current_user", "session_user", "user"), "write the name as a text"),
    **dict.fromkeys(("current_catalog", "current_database", "current_schema", "current_path"), "write it as a text"),
    "current_timezone": "write the time zone as a text",
    **dict.fromkeys(
        ("input_file_name", "input_file_block_start", "input_file_block_length"),
        "a view does not know files; put the name into the data",
    ),
    **dict.fromkeys(
        ("monotonically_increasing_id", "spark_partition_id"),
        "rows have no number and no fixed partition here; use uuid() for a key",
    ),
    **dict.fromkeys(("randstr", "uniform", "shuffle"), "make it of rand() or uuid(), whose values are kept"),
    "aes_encrypt": "give it the mode, the padding and the IV",
}
INSTEAD_OF_ANY = "register a function with flow.udf and hf.nondeterministic: its answers are kept"

# Names that Spark reads as a call without parentheses, where no column has that name.
BARE_CALLS = _names(
    "current_date current_time current_timestamp current_user localtime localtimestamp session_user user"
)

# Deterministic only with at least so many arguments: unix_timestamp() is the clock, aes_encrypt draws its own IV.
DETERMINISTIC_FROM = {"unix_timestamp": 1, "to_unix_timestamp": 1, "aes_encrypt": 5}

# These take a unit (a bare word that is not a column) as the first of three arguments.
UNIT_FIRST = _names("dateadd date_add datediff date_diff timestampadd timestampdiff")

# Names that a user's function cannot have: Spark's meaning of them is known here.
RESERVED_NAMES = frozenset(AGGREGATES).union(
    OTHER_AGGREGATES, GENERATORS, TIME_WINDOWS, WINDOW_FUNCTIONS, DRAWN, NONDETERMINISTIC, BARE_CALLS,
    DETERMINISTIC_FROM, UNIT_FIRST, GROUPING,
)  # fmt: skip
