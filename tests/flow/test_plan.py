"""One job, one exchange per different key, each operator once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import holdfast as hf


def _shuffles(flow: hf.Flow) -> int:
    """The exchanges in the Spark plan of an epoch."""
    job: Any = flow._started()._job
    lineage = job.plan([])[0]._jrdd.rdd().toDebugString()
    return str(lineage).count("ShuffledRDD")


def test_two_keyed_operators_on_the_same_key_have_one_exchange(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("plan", log=tmp_path / "log", spark=spark) as flow:
        flow.input("t", "k long, x long")
        flow.input("u", "k long, y long")
        flow.view("v", "SELECT t.k, sum(x * y) AS s, count(*) AS n FROM t JOIN u ON t.k = u.k GROUP BY t.k")
        assert _shuffles(flow) == 1


def test_operators_of_several_views_share_the_exchanges(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("plan", log=tmp_path / "log", spark=spark) as flow:
        flow.input("t", "k long, x long, g string")
        flow.view("a", "SELECT k, sum(x) AS s FROM t GROUP BY k")
        flow.view("b", "SELECT g, count(*) AS n FROM t GROUP BY g")
        flow.view("c", "SELECT DISTINCT x FROM t")
        assert _shuffles(flow) == 1


def test_a_different_key_needs_a_second_exchange(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("plan", log=tmp_path / "log", spark=spark) as flow:
        flow.input("t", "k long, x long")
        flow.view("a", "SELECT k, sum(x) AS s FROM t GROUP BY k")
        flow.view("b", "SELECT s, count(*) AS n FROM a GROUP BY s")
        assert _shuffles(flow) == 2


def test_a_view_with_two_sinks_and_two_readers_runs_each_operator_once_per_epoch(
    spark: SparkSession, tmp_path: Path
) -> None:
    seen: list[int] = []
    with hf.Flow("plan", log=tmp_path / "log", spark=spark, partitions=2) as flow:
        t = flow.input("t", "k long, x long")
        flow.view("a", "SELECT k, sum(x) AS s FROM t GROUP BY k")
        flow.view("b", "SELECT s, count(*) AS n FROM a GROUP BY s")
        flow.view("c", "SELECT max(s) AS m FROM a")
        flow.sink("a", hf.changelog(str(tmp_path / "one")))
        flow.sink("a", hf.foreach(lambda epoch, change: seen.append(change.num_rows)))
        engine = flow._started()
        runs: list[dict[str, int]] = []
        run = engine._job.run

        def counted(*arguments: Any) -> Any:
            outcome = run(*arguments)
            counts: dict[str, int] = {}
            for report in outcome.reports:
                for operator in report.rows:
                    counts[operator] = counts.get(operator, 0) + 1
            runs.append(counts)
            return outcome

        engine._job.run = counted  # type: ignore[method-assign]  # to look at what the tasks reported
        t.insert([(k, k) for k in range(10)])
        flow.step()
        assert seen == [10]
        assert runs == [dict.fromkeys(engine._compiled.flow.operators, 2)]  # once per partition
        files = sorted((tmp_path / "one").glob("*.parquet"))
        assert len(files) == 1


def test_an_operator_that_two_views_have_in_common_is_kept_once(spark: SparkSession, tmp_path: Path) -> None:
    with hf.Flow("plan", log=tmp_path / "log", spark=spark) as flow:
        flow.input("t", "k long, x long")
        flow.view("a", "SELECT k, sum(x) AS s FROM t GROUP BY k")
        flow.view("b", "SELECT k AS other, s AS names FROM (SELECT k, sum(x) AS s FROM t GROUP BY k)")
        kinds = [operator.kind for operator in flow._started()._compiled.flow.operators.values()]
        assert kinds.count("aggregate") == 1


def test_a_flow_without_views_starts_no_spark(tmp_path: Path) -> None:
    import subprocess
    import sys

    program = (
        "import sys, holdfast as hf\n"
        f"flow = hf.Flow('quiet', log={str(tmp_path / 'log')!r})\n"
        "flow.input('t', 'k long, x long')\n"
        "assert 'pyspark' not in sys.modules, 'pyspark was imported'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert not (tmp_path / "log").exists()
