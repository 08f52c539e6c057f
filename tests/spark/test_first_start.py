"""What is done while a local session starts."""

from __future__ import annotations

import sys
import threading

from pyspark.sql import SparkSession

from holdfast.spark.first_start import _NEEDED, importing_meanwhile, start_workers


def test_what_a_flow_needs_is_imported_when_the_session_is_there() -> None:
    with importing_meanwhile():
        pass
    assert set(_NEEDED) <= sys.modules.keys(), "a module that was renamed would not be missed"


def test_workers_are_started_by_a_job_for_which_nobody_waits(spark: SparkSession) -> None:
    before = int(spark.sparkContext._jsc.sc().dagScheduler().nextJobId())
    start_workers(spark)
    for thread in threading.enumerate():
        if thread.name == "holdfast-first-job":
            assert thread.daemon
            thread.join(60)
    assert int(spark.sparkContext._jsc.sc().dagScheduler().nextJobId()) > before
