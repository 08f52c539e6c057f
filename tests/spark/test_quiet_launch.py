"""What the JVM says at every start is kept from standard error; what this process draws meanwhile is not."""

from __future__ import annotations

import os
import threading

from holdfast.spark.quiet_launch import _pass_on


def test_noise_is_kept_back_and_a_line_that_is_drawn_in_place_is_shown_at_once() -> None:
    (reading, writing), (shown, real) = os.pipe(), os.pipe()
    passing = threading.Thread(target=_pass_on, args=(reading, real), daemon=True)
    passing.start()
    os.write(writing, b"WARNING: Using incubator modules: jdk.incubator.vector\n")
    frames = [f"\r⠋ flow 'shop': starting Spark, {second} s".encode() for second in range(3)]
    for frame in frames:
        os.write(writing, frame)
        assert os.read(shown, 1000) == frame, "there is no end of the line to wait for"
    os.write(writing, b"26/11/18 WARN Utils: something else\n26/11/18 WARN NativeCodeLoader: ")
    assert os.read(shown, 1000) == b"26/11/18 WARN Utils: something else\n"
    os.write(writing, b"Unable to load native-hadoop library\nan end")
    os.close(writing)
    passing.join(10)
    assert os.read(shown, 1000) == b"an end"
    for end in (reading, shown, real):
        os.close(end)
