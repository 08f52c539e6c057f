"""The user's configuration of Spark, read before a session is started.

Under ``spark-submit`` the JVM already runs and knows it: the command's options, ``spark-defaults.conf``, the
environment. Otherwise the session starts the JVM, with settings that must be known before. So ``spark-defaults.conf``
and ``PYSPARK_SUBMIT_ARGS`` are read here, as Spark itself will read them.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home

_OPTIONS = {
    "--master": "spark.master",
    "--name": "spark.app.name",
    "--driver-memory": "spark.driver.memory",
    "--executor-memory": "spark.executor.memory",
}


def configured(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings that the user has made, by name."""
    if "PYSPARK_GATEWAY_PORT" in environment:
        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    directory = environment.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf"
    found = defaults(Path(directory) / "spark-defaults.conf")
    if "MASTER" in environment:
        found.setdefault("spark.master", environment["MASTER"])
    return found | arguments(shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", "")))


def defaults(path: Path) -> dict[str, str]:
    """Return the settings of a ``spark-defaults.conf``; none if there is no such file."""
    if not path.is_file():
        return {}
    lines = (line.strip() for line in path.read_text().splitlines())
    pairs = (re.split(r"[\s=:]+", line, maxsplit=1) for line in lines if line and line[0] not in "#!")
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def arguments(words: Sequence[str]) -> dict[str, str]:
    """Return the settings among the options of a ``spark-submit`` command."""
    found: dict[str, str] = {}
    for word, following in zip(words, [*words[1:], ""], strict=False):  # no words, no pairs
        option, equals, value = word.partition("=")
        value = value if equals else following
        if option in _OPTIONS:
            found[_OPTIONS[option]] = value
        elif option in ("--conf", "-c") and "=" in value:
            key, _, setting = value.partition("=")
            found[key] = setting
    return found
