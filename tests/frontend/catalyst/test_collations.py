"""Texts are equal, and in order, as their collation says."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from .keeping import check, numbered, refused


def test_texts_that_a_collation_makes_equal_are_one(spark: SparkSession, tmp_path: Path) -> None:
    check(
        spark,
        tmp_path,
        numbered(
            "select lower(k) k, n from (select u collate utf8_lcase as k, count(*) n from o group by all)",
            "select lower(c) c from (select distinct u collate unicode_ci as c from o)",
            "select count(distinct u collate utf8_lcase) a, approx_count_distinct(u collate utf8_lcase) b from o",
            "select id from o where u collate utf8_lcase = 'BOB' or u collate utf8_lcase in ('ADA', 'x')",
            "select id, u collate utf8_lcase > 'ADA' g, case when u collate utf8_lcase = 'ADA' then 1 end e from o",
            "select a.id i, b.id j from o a join o b on a.u collate utf8_lcase = b.u",
            "select id, row_number() over (partition by u collate utf8_lcase order by id) r from o",
            "select id from o order by u collate utf8_lcase desc nulls last, id limit 3",
            "select k, lower(max(u collate utf8_lcase)) m, max_by(id, struct(id)) x from o group by k",
            "select id, like(u collate utf8_lcase, 'B%') l, startswith(u collate utf8_lcase, 'A') s from o",
        ),
    )


@pytest.mark.parametrize(
    ("query", "construct"),
    [
        ("select mode(u collate utf8_lcase) from o", "mode of texts with a collation"),
        ("select u collate unicode_ci from o except select 'x' collate unicode_ci", "EXCEPT of texts with a collation"),
        (
            "select array(u collate utf8_lcase) a from o group by 1",
            "a collation inside of a struct, an array or a map",
        ),
    ],
)
def test_what_would_compare_bytes_is_refused(spark: SparkSession, tmp_path: Path, query: str, construct: str) -> None:
    assert refused(spark, tmp_path, query).fields["construct"] == construct
