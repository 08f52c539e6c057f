"""Start of the JVM without the lines that it and Spark always print: incubator modules, log profiles, native libraries,
host names.

The JVM writes to the standard error that it inherits. While it is launched, that is a pipe, and a thread passes its
lines on for as long as the JVM lives, except for lines that are the same at each start and useless to the user. All
other output of the JVM appears as before, and so does a line that this process draws in place meanwhile: its progress.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from pyspark import SparkContext

_NOISE = (
    b"WARNING: Using incubator modules",
    b"Using Spark's default log4j profile",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"Setting Spark log level to",
    b"Unable to load native-hadoop library",
    b"resolves to a loopback address",
    b"Set SPARK_LOCAL_IP if you need to bind",
)


@contextmanager
def quiet_launch() -> Iterator[None]:
    """Suppress those lines on standard error, if this process starts the JVM during the block."""
    running = SparkContext._gateway is not None
    if running or "PYSPARK_GATEWAY_PORT" in os.environ:
        yield
        return
    try:
        real = os.dup(2)
        reading, writing = os.pipe()
    except OSError:  # no standard error at all
        yield
        return
    threading.Thread(target=_pass_on, args=(reading, real), name="holdfast-jvm-stderr", daemon=True).start()
    sys.stderr.flush()
    os.dup2(writing, 2)
    os.close(writing)
    try:
        yield
    finally:
        with suppress(OSError):
            sys.stderr.flush()
        os.dup2(real, 2)


def _pass_on(reading: int, real: int) -> None:
    left = b""
    with suppress(OSError):
        while block := os.read(reading, 1 << 16):
            *lines, left = (left + block).split(b"\n")
            for line in lines:
                if not any(noise in line for noise in _NOISE):
                    os.write(real, line + b"\n")
            if b"\r" in left:  # drawn in place: no line end follows; the JVM writes no such line
                os.write(real, left)
                left = b""
        if left:
            os.write(real, left)
