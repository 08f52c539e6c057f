"""Errors that tasks meet, on their way to the user.

An error of the data (a bad file, a row deleted twice) is a result like any other (`operators/stage.py`): the task sends
it to the driver and ends well, so that Spark neither retries what can only fail again nor buries it under traces. What
Spark itself raises (an overflow in an expression, say) is translated here.
"""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

from holdfast.errors import EvaluationError, HoldfastError


def translated(error: BaseException, subject: str) -> HoldfastError | None:
    """The user's error behind one that Spark raised; None if it is not the user's."""
    text = str(error)
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    found = re.search(r"\[([A-Z_]+(?:\.[A-Z_]+)*)\] ([^\n]*)", text)
    name = condition or (found.group(1) if found else None)
    if name is None or not name.startswith(_EVALUATION):
        return None
    sentence = found.group(2) if found else text.split("\n", 1)[0]
    sentence = re.sub(r"\s*SQLSTATE:? \w+.*", "", sentence).strip()
    return EvaluationError(f"{subject}: {sentence}", condition=name)


_EVALUATION = (
    "ARITHMETIC_OVERFLOW",
    "BINARY_ARITHMETIC_OVERFLOW",
    "DIVIDE_BY_ZERO",
    "REMAINDER_BY_ZERO",
    "CAST_INVALID_INPUT",
    "CAST_OVERFLOW",
    "NUMERIC_VALUE_OUT_OF_RANGE",
    "INVALID_ARRAY_INDEX",
    "INVALID_VARIANT_CAST",
    "INVALID_VARIANT_GET_PATH",
    "MALFORMED_RECORD_IN_PARSING",
    "MALFORMED_VARIANT",
    "MAP_KEY_DOES_NOT_EXIST",
    "USER_RAISED_EXCEPTION",
    "DATETIME_OVERFLOW",
    "INTERVAL_ARITHMETIC_OVERFLOW",
    "CANNOT_PARSE_TIMESTAMP",
    "INVALID_FRACTION_OF_SECOND",
    "DATETIME_FIELD_OUT_OF_BOUNDS",
)
