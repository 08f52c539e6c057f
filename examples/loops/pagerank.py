"""PageRank with a tolerance, kept up to date while links come and go.

`flow.iterate` keeps the ranks of every round. A link that changes costs the ranks that it moves, in the rounds in which
it moves them. What a round computes are functions of our own: in a loop Spark's are not at hand. Ranks are whole
numbers of a billionth, so that a round that changes nothing changes nothing at all;
``until`` ends the iteration when no rank moves by more than the tolerance.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType
from rich.console import Console
from rich.table import Table

import holdfast as hf

ONE = 1_000_000_000
TOLERANCE = ONE // 10_000
"""Ranks add up to as many times ``ONE`` as there are pages."""

Link = tuple[str, str]
LINKS: list[Link] = [
    ("home", "news"), ("home", "shop"), ("home", "blog"), ("news", "home"), ("news", "blog"), ("shop", "home"),
    ("shop", "cart"), ("cart", "shop"), ("blog", "home"), ("blog", "news"), ("blog", "post"), ("post", "blog"),
]  # fmt: skip


@F.pandas_udf(LongType())
def share(rank: pd.Series, n: pd.Series) -> pd.Series:
    """What a page gives to each of the pages that it links to."""
    return rank * 85 // (100 * n)


@F.pandas_udf(BooleanType())
def moves(rank: pd.Series, old: pd.Series) -> pd.Series:
    """Whether a rank still moves by more than the tolerance."""
    return (rank - old).abs() > TOLERANCE


def declare(flow: hf.Flow) -> hf.Input:
    """Declare links and their ranks."""
    links = flow.input("links", schema="a string, b string")
    flow.view("shares", "SELECT a, b, count(*) OVER (PARTITION BY a) AS n FROM links")

    def round(ranks: DataFrame) -> DataFrame:
        shares = flow.table("shares")
        told = ranks.join(shares, ranks.page == shares.a).select(
            F.col("b").alias("page"), share("rank", "n").alias("rank")
        )
        base = ranks.select("page", F.lit(ONE * 15 // 100).alias("rank"))
        return base.union(told).groupBy("page").agg(F.sum("rank").alias("rank"))

    def moving(before: DataFrame, now: DataFrame) -> DataFrame:
        then = before.withColumnRenamed("rank", "old").withColumnRenamed("page", "then")
        return now.join(then, now.page == then.then).where(moves("rank", "old"))

    pages = f"SELECT page, {ONE}L AS rank FROM (SELECT a AS page FROM links UNION SELECT b FROM links)"
    flow.iterate("ranks", pages, round, until=moving)
    return links


def expected(links: Iterable[Link]) -> dict[str, int]:
    """The same in plain Python."""
    links = list(links)
    pages = {page for link in links for page in link}
    ranks = dict.fromkeys(pages, ONE)
    while True:
        new = dict.fromkeys(pages, ONE * 15 // 100)
        for a, b in links:
            new[b] += ranks[a] * 85 // (100 * sum(each == a for each, _ in links))
        if all(abs(new[page] - ranks[page]) <= TOLERANCE for page in pages):
            return ranks
        ranks = new


def ranks_of(flow: hf.Flow) -> Mapping[str, int]:
    return {row.page: row.rank for row in flow.read("ranks").collect()}


def main(**options: Any) -> None:
    table = Table("page", "rank", "when the news link to the post", "when the shop is closed", title="PageRank")
    with tempfile.TemporaryDirectory() as root, hf.Flow("pagerank", log=Path(root) / "log", **options) as flow:
        links = declare(flow)
        links.insert(LINKS)
        flow.step()
        columns = [ranks_of(flow)]
        links.insert([("news", "post")])
        flow.step()
        columns.append(ranks_of(flow))
        links.delete([link for link in LINKS if "shop" in link])
        flow.step()
        columns.append(ranks_of(flow))
    for page in sorted(columns[0], key=columns[0].__getitem__, reverse=True):
        table.add_row(page, *(f"{ranks[page] / ONE:.3f}" if page in ranks else "–" for ranks in columns))
    Console().print(table)


if __name__ == "__main__":
    main()
