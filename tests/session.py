"""One Spark session for all tests of a process, with the settings that a flow would give it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def shared_session() -> SparkSession:
    from holdfast.spark.session import local_builder

    builder = local_builder(2).appName("holdfast-tests")
    # Tests run hundreds of queries once, over a few rows: compiling each would take most of the time.
    compiled = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    # A JVM of minutes on two cores: what its second compiler would save it spends.
    small = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    for key, value in {**compiled, **small, "spark.sql.shuffle.partitions": "2"}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # many tests are about failures; what matters of them is asserted
    return session
