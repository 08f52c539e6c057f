"""k-means over rows that arrive, with the model read while it learns.

The model (one row per cluster: where its middle is) is the variable of the iteration. It starts from the same middles
in each epoch's terms, and the rounds that lead to the fixpoint are kept up to date: a new point only costs the clusters
that it moves. Coordinates are whole numbers, so that the fixpoint is reached exactly.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType
from pyspark.sql.window import Window
from rich.console import Console
from rich.table import Table

import holdfast as hf

Point = tuple[int, int, int]
"""A name, and two coordinates."""

STARTS = {1: (0, 0), 2: (500, 1000), 3: (1000, 0)}
CENTRES = [(150, 150), (550, 800), (900, 250)]


def points(count: int, seed: int, first: int = 0) -> list[Point]:
    """Points around three centres."""
    dice = random.Random(seed)
    found = []
    for name in range(first, first + count):
        x, y = dice.choice(CENTRES)
        found.append((name, round(dice.gauss(x, 90)), round(dice.gauss(y, 90))))
    return found


@F.pandas_udf(LongType())
def far(x: pd.Series, y: pd.Series, mx: pd.Series, my: pd.Series) -> pd.Series:
    """The square of the distance of a point from a middle."""
    return (x - mx) ** 2 + (y - my) ** 2


@F.pandas_udf(LongType())
def middle(total: pd.Series, n: pd.Series) -> pd.Series:
    """The mean of so many coordinates, as a whole number."""
    return total // n


def declare(flow: hf.Flow) -> hf.Input:
    """Declare points and the model."""
    given = flow.input("points", schema="name long, x long, y long")
    starts = flow.input("starts", schema="cluster long, mx long, my long")
    starts.insert([(cluster, *middle) for cluster, middle in STARTS.items()])

    def round(model: DataFrame) -> DataFrame:
        nearest = Window.partitionBy("name").orderBy("far", "cluster")
        pairs = flow.table("points").crossJoin(model).withColumn("far", far("x", "y", "mx", "my"))
        mine = pairs.withColumn("place", F.row_number().over(nearest)).where("place = 1")
        sums = mine.groupBy("cluster").agg(F.sum("x").alias("x"), F.sum("y").alias("y"), F.count("*").alias("n"))
        middles = [middle(name, "n").alias(f"m{name}") for name in ("x", "y")]
        return sums.select("cluster", *middles)

    flow.iterate("model", "SELECT cluster, mx, my FROM starts", round, max_rounds=200)
    return given


def expected(given: Iterable[Point]) -> dict[int, tuple[int, int]]:
    """The same in plain Python."""
    given, model = list(given), dict(STARTS)
    while True:
        mine: dict[int, list[Point]] = {}
        for point in given:
            distances = [((point[1] - x) ** 2 + (point[2] - y) ** 2, name) for name, (x, y) in model.items()]
            mine.setdefault(min(distances)[1], []).append(point)
        new = {
            name: (sum(x for _, x, _ in some) // len(some), sum(y for _, _, y in some) // len(some))
            for name, some in mine.items()
        }
        if new == model:
            return model
        model = new


def model_of(flow: hf.Flow) -> Mapping[int, tuple[int, int]]:
    return {row.cluster: (row.mx, row.my) for row in flow.read("model").collect()}


def main(**options: Any) -> None:
    table = Table("points", *(f"cluster {each}" for each in STARTS), "epoch (ms)", title="k-means while points arrive")
    with tempfile.TemporaryDirectory() as root, hf.Flow("clusters", log=Path(root) / "log", **options) as flow:
        given = declare(flow)
        for batch in range(5):
            given.insert(points(40, seed=batch, first=40 * batch))
            epoch = flow.step()
            model = model_of(flow)
            middles = [f"{model[each][0]}, {model[each][1]}" if each in model else "–" for each in STARTS]
            table.add_row(str(40 * (batch + 1)), *middles, f"{1000 * epoch.seconds:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
