"""Errors of tasks, translated for the user.

An error of the data (a bad file, a row deleted twice) is an ordinary result (`task/stage.py`): the task sends it to the
driver and ends normally, so that Spark neither retries what can only fail again nor buries it under traces. This file
translates the errors that Spark itself raises (an overflow in an expression, for example), and the errors of the file
system that a task met in the flow's own files. Spark may have tried such a task several times before.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

import holdfast
from holdfast.errors import EvaluationError, ExchangeFailed, HoldfastError, LogError, TasksLost
from holdfast.foundation.os_errors import fix


def translated(
    error: BaseException, subject: str, views: Callable[[str], list[str]] = lambda _: []
) -> HoldfastError | None:
    """Return the user's error behind an error of Spark; None if it is not the user's.

    ``views``: finds, in the text of an error, the views that it can be about. ``subject``: begins the message.
    """
    text = str(error)
    if (refused := _refused(text, subject)) is not None:
        return refused
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    found = re.search(r"\[([A-Z_]+(?:\.[A-Z_]+)*)\] ((?:[^\n]*:\n)?[^\n]*)", text)
    name = condition or (found.group(1) if found else None)
    state = re.search(r"SQLSTATE:? (\w{2})\w{3}", text)
    if name is None or not (name.startswith(_EVALUATION) or (state is not None and state.group(1) in _STATES)):
        return None
    sentence = found.group(2) if found else text.split("\n", 1)[0]
    sentence = sentence.replace("\n", " ")
    sentence = re.sub(r"\s*(?:If necessary set .* to bypass this error\b|SQLSTATE:? \w+).*", "", sentence).strip()
    fields: dict[str, object] = {"condition": name.partition(".")[0]}
    names = views(text)
    if len(names) == 1:
        subject, fields["view"] = f"view '{names[0]}', {subject.rpartition(': ')[2]}", names[0]
    elif names:
        listed = ", ".join(f"'{name}'" for name in names[:3]) + (", …" if len(names) > 3 else "")
        subject, fields["views"] = f"{subject}, one of the views {listed}", names
    return EvaluationError(f"{subject}: {sentence}", **fields)


def lost(error: BaseException, subject: str) -> TasksLost | None:
    """Return `TasksLost` if Spark's error says that tasks died, or that Spark can run none any more; else None."""
    text = str(error)
    if isinstance(error, Py4JNetworkError | ConnectionError) or "Answer from Java side is empty" in text:
        return TasksLost(
            f"{subject}: Spark's JVM does not answer any more (it ended, or was killed); start the program again: the "
            "flow goes on where it was",
            spark=False,
        )
    if re.search(r"stopped SparkContext|SparkContext was shut down|SparkContext has been shutdown", text):
        return TasksLost(
            f"{subject}: the Spark session was stopped; open the flow again with one that runs", spark=False
        )
    if (lacking := _LACKING.search(text)) is not None:
        python, module = lacking["python"] or os.environ.get("PYSPARK_PYTHON", "python3"), lacking["module"]
        other = f"set PYSPARK_PYTHON={sys.executable} before the Spark session is made, or "
        return TasksLost(
            f"{subject}: the Python that Spark's workers run, {python}, has no module '{module}'; "
            f"{other if python != sys.executable else ''}install it for that Python, or send it along with "
            "spark.sparkContext.addPyFile",
            python=python,
            module=module,
            spark=True,
        )
    found = next((why for pattern, why in _DIED if re.search(pattern, text)), None)
    if found is None:
        return None
    times = re.search(r"failed (\d+) times?, most recent failure", text)
    count = int(times[1]) if times else 1
    often = "once, and Spark does not try again in a local session" if count == 1 else f"{count} times in a row"
    return TasksLost(
        f"{subject}: {found}, {often}; nothing of it took effect. Was it killed for its memory? Give workers more, or "
        "the flow more partitions; then run it again",
        attempts=count,
        spark=True,
    )


_LACKING = re.compile(
    r"(?:Error from python worker:\s+(?P<python>\S+): .*?|cloudpickle\.loads\([^\n]*\n[ ^]*\nModuleNotFoundError: )"
    r"No module named '(?P<module>[\w.]+)'"
)
"""Matches two errors: a worker does not start, or a worker cannot load its function."""

_DIED = (
    (r"Python worker exited unexpectedly|Python worker .*crashed", "the Python worker that ran a task died"),
    (r"ExecutorLostFailure|Executor heartbeat timed out|Lost executor", "the executor that ran a task was lost"),
    (r"Python worker failed to connect back", "a Python worker did not start"),
)


_NOT_FETCHED = re.compile(r"has failed the maximum allowable number of times")
_FROM = re.compile(r"(?:Failed to connect to|Connection to|Connecting to|from) /?([\w.-]+(?:/[\d.]+)?:\d+)")


def not_exchanged(error: BaseException, subject: str) -> ExchangeFailed | None:
    """Return `ExchangeFailed` if Spark's error says that it gave up an exchange between executors; else None."""
    text = str(error)
    if not _NOT_FETCHED.search(text):
        return None
    silent = sorted(set(_FROM.findall(text)))
    return ExchangeFailed(
        f"{subject}: executors could not get each other's rows, several times"
        f"{f'; {silent[0]} did not answer' if silent else ''}; see that the network between executors is whole, and "
        "step again",
        executors=silent,
    )


_OWN = str(Path(holdfast.__file__).parent)
_FRAME = re.compile(r'^\s*File "([^"]+)", line', re.MULTILINE)
_SYSTEM = re.compile(
    r"^(?:\w+\.)*\w*Error: \[Errno (\d+)\] ([^\n]*?)(?:: '([^'\n]*)')?(?: -> '([^'\n]*)')?$", re.MULTILINE
)


def _refused(text: str, subject: str) -> LogError | None:
    """Return `LogError` for an error of the file system in Holdfast's own code in a task; None for another error, or
    one in a user's function."""
    found = list(_SYSTEM.finditer(text))
    if not found:
        return None
    last = found[-1]
    frames = [frame for frame in _FRAME.findall(text[: last.start()]) if not _is_library(frame)]
    if not frames or not frames[-1].startswith(_OWN):
        return None
    code, where = int(last[1]), last[4] or last[3]
    reason = fix(OSError(code, os.strerror(code)))
    return LogError(f"{subject}: {f'{where}: ' if where else ''}{reason}", path=where, errno=code)


def _is_library(frame: str) -> bool:
    return not frame.startswith(_OWN) and ("/lib/python3" in frame or "/site-packages/" in frame)


_STATES = ("0A", "21", "22", "23", "42", "54", "P0")
"""The classes of SQLSTATE for errors of an expression and its values: an unsupported construct, a cardinality, a value,
a constraint (a key twice in a map), an argument (a pattern for dates), a limit, an error raised on purpose. The other
classes are about Spark, its storage, or Python functions."""

_EVALUATION = (
    "ARITHMETIC_OVERFLOW",
    "BINARY_ARITHMETIC_OVERFLOW",
    "DIVIDE_BY_ZERO",
    "SCALAR_SUBQUERY_TOO_MANY_ROWS",
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
"""Error conditions of expressions that come without a SQLSTATE, or with one of another class."""
