"""The settings of a Spark session that change what a view means, and how a flow treats them.

The time zone is the user's choice. It is recorded in the log when the flow first runs, and holds from then on, because
rows that were computed in one zone can only be retracted in the same one. A later session's zone changes nothing, and
the flow says so once.

All other settings must be Spark's defaults. Holdfast evaluates most expressions itself, as Spark does by default (ANSI
mode, names that ignore case, …). With other settings a view would mix two meanings, so it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from holdfast.errors import DeclarationError

ZONE = "spark.sql.session.timeZone"

FIXED = (
    "spark.sql.ansi.enabled",
    "spark.sql.ansi.doubleQuotedIdentifiers",
    "spark.sql.caseSensitive",
    "spark.sql.decimalOperations.allowPrecisionLoss",
    "spark.sql.groupByAliases",
    "spark.sql.groupByOrdinal",
    "spark.sql.jsonGenerator.ignoreNullFields",
    "spark.sql.legacy.castComplexTypesToString.enabled",
    "spark.sql.legacy.consecutiveStringLiterals.enabled",
    "spark.sql.legacy.disableMapKeyNormalization",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled",
    "spark.sql.legacy.json.allowEmptyString.enabled",
    "spark.sql.legacy.literal.pickMinimumPrecision",
    "spark.sql.legacy.negativeIndexInArrayInsert",
    "spark.sql.legacy.nullInEmptyListBehavior",
    "spark.sql.legacy.setopsPrecedence.enabled",
    "spark.sql.legacy.sizeOfNull",
    "spark.sql.legacy.statisticalAggregate",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.mapKeyDedupPolicy",
    "spark.sql.orderByOrdinal",
    "spark.sql.parser.escapedStringLiterals",
    "spark.sql.timestampType",
)
"""Settings that change answers, and must have Spark's default. A setting that this version of Spark does not know is
skipped."""


def meaning_of(spark: SparkSession, flow: str) -> dict[str, str]:
    """Return the session's settings that decide a view's meaning, the time zone resolved (by default it is the host's).
    Raises `DeclarationError` if a setting in `FIXED` is not Spark's default."""
    jvm: Any = spark.sparkContext._jvm
    usual = jvm.org.apache.spark.sql.internal.SQLConf()
    present: Any = spark
    settings = present._jsparkSession.sessionState().conf()
    found = {ZONE: str(settings.getConfString(ZONE))}
    for name in FIXED:
        if not settings.isModifiable(name):
            continue
        value, default = settings.getConfString(name), usual.getConfString(name)
        if value is None and default is None:
            continue  # another setting decides
        if str(value).lower() != str(default).lower():
            raise DeclarationError(
                f"flow '{flow}': the Spark session says {name}={value}; views have the meaning that SQL has with "
                f"{name}={default}, Spark's default: set it back (spark.conf.unset({name!r})), or give the flow a "
                "session of its own (spark.newSession())",
                flow=flow,
                setting=name,
                found=value,
                expected=default,
            )
        found[name] = str(value)
    return found


def planning_session(spark: SparkSession, meaning: Mapping[str, str]) -> SparkSession:
    """Return a session of the same Spark for Holdfast's own queries, with the settings of ``meaning``. The user's
    session and its settings neither change nor matter."""
    own = spark.newSession()
    own.conf.set("spark.sql.adaptive.enabled", "false")
    for name, value in meaning.items():
        own.conf.set(name, value)
    return own


def differing(spark: SparkSession, meaning: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of ``meaning`` that have another value in the session, with the session's value."""
    present: Any = spark
    settings = present._jsparkSession.sessionState().conf()
    found = {name: str(settings.getConfString(name)) for name in meaning}
    return {name: value for name, value in found.items() if value.lower() != meaning[name].lower()}
