"""Properties of a time zone: whether all days have 24 hours, and whether a date can come twice.

A condition on the clock is turned into moments of a row (`frontend.temporal_filters`). That requires that the value
compared with the row never goes back while time passes. Local time goes back where clocks are put back; the date goes
back only where they are put back just after midnight.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pyspark.sql import SparkSession

_SINCE, _UPTO = 2020, 2100
"""The years whose clock changes are checked: no flow has an earlier clock."""


def keeps_days(spark: SparkSession, zone: str) -> bool:
    """Whether all days have 24 hours."""
    return bool(_rules(spark, zone).isFixedOffset())


@lru_cache(maxsize=32)
def keeps_dates(spark: SparkSession, zone: str, since: int = _SINCE) -> bool:
    """Whether no date comes twice. (In Newfoundland, clocks once went from 0:01 back to 23:01.)"""
    rules = _rules(spark, zone)
    at = _time(spark).Instant.parse(f"{since}-01-01T00:00:00Z")
    while (transition := rules.nextTransition(at)) is not None:
        at = transition.getInstant()
        last, first = transition.getDateTimeBefore().minusNanos(1), transition.getDateTimeAfter()
        if first.toLocalDate().isBefore(last.toLocalDate()):
            return False
        if first.getYear() > _UPTO:
            break
    return True


def _rules(spark: SparkSession, zone: str) -> Any:
    return spark._jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(zone).getRules()


def _time(spark: SparkSession) -> Any:
    return spark._jvm.java.time
