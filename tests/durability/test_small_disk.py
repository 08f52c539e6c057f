"""A recovery into a disk that is too small: it says what is needed and where, and with room it goes on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import LogError
from holdfast.testing.memory import MemoryLocation

from .simulated import Shop, die


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few pages, in memory."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_recovery_into_a_disk_that_is_too_small_says_what_it_needs(tmp_path: Path, small: Path) -> None:
    shop = Shop(tmp_path)
    copy = MemoryLocation("copy")
    engine = shop.open([copy], local=tmp_path / "large")
    shop.run(engine, 4)
    engine.close()
    before = copy.snapshot()
    for _ in range(2):
        with pytest.raises(
            LogError, match=r"the disk is full; .* MB are free, and \d+ layers are to be brought"
        ) as caught:
            shop.open([copy], local=small / "log")
        assert str(small / "log") in str(caught.value) and "local=…" in str(caught.value)
        assert caught.value.fields["needed"] > 0 and caught.value.fields["layers"] > 0
    for path, data in before.items():
        assert path.startswith(("claims/", "roster/")) or copy.snapshot()[path] == data
    subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
    engine = shop.open([copy], local=small / "log")
    shop.check(engine)
    die(engine)
    engine = shop.open([copy], local=tmp_path / "large")  # or elsewhere
    shop.check(engine)
    engine.close()
