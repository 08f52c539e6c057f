"""Reasons why Spark did not start: usually there is no suitable Java."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from holdfast.errors import SparkNotStarted

_LEAST = 17
_DO = f"install Java {_LEAST} or newer (Debian and Ubuntu: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"


def not_started(error: Exception) -> SparkNotStarted:
    """Return the reason why the JVM did not start, as far as it can be found."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java") if home is None else shutil.which(Path(home) / "bin" / "java")
    if java is None:
        found = (
            "there is no java on the PATH, and JAVA_HOME is not set"
            if home is None
            else f"JAVA_HOME is {home}, where there is no bin/java"
        )
        return SparkNotStarted(f"Spark needs Java, and none was found: {found}; {_DO}", java=None)
    version = _version(java)
    if version is not None and version < _LEAST:
        return SparkNotStarted(f"Spark needs Java {_LEAST} or newer, and {java} is Java {version}; {_DO}", java=java)
    return SparkNotStarted(
        f"Spark's JVM ({java}) ended before it answered: {error}. What it said is on standard error; is there enough "
        "memory for spark.driver.memory, and may this process write to the temporary directory?",
        java=java,
    )


def _version(java: str) -> int | None:
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=10).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None
