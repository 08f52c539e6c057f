"""How far back: texts, and the epochs they mean."""

from __future__ import annotations

import pytest

from holdfast.coordinator.history import History
from holdfast.coordinator.lineage import Lineage
from holdfast.coordinator.retention import Bound, Retention, parse_bound, parse_retention

HOUR = 3600 * 1_000_000


def test_a_retention_is_epochs_a_time_or_all() -> None:
    assert parse_retention(1000) == Retention(epochs=1000)
    assert parse_retention("24h") == Retention(seconds=86400.0)
    assert parse_retention("1.5d") == Retention(seconds=129600.0)
    assert parse_retention("all") == Retention()
    for wrong in ("", "24", "h", "-1h", -1, True, None, 2.5):
        with pytest.raises(ValueError, match="a number of epochs, a time such as '24h'"):
            parse_retention(wrong)


def test_a_bound_is_epochs_or_a_size() -> None:
    assert parse_bound(None) == Bound()
    assert parse_bound(3) == Bound(epochs=3)
    assert parse_bound("512MB") == Bound(bytes=512_000_000)
    assert parse_bound("1.5 gb") == Bound(bytes=1_500_000_000)
    for wrong in ("", "512", "MB", 0, -1, True, 2.5):
        with pytest.raises(ValueError, match="a size such as '512MB'"):
            parse_bound(wrong)
    assert Bound(epochs=2).allows(10**9, 2) and not Bound(epochs=2).allows(0, 3)
    assert Bound(bytes=5).allows(5, 10**6) and not Bound(bytes=5).allows(6, 0)


def test_a_time_keeps_what_was_true_so_long_ago() -> None:
    history = History([Lineage(epoch, "", {}, epoch * HOUR, 0) for epoch in range(10)])
    assert Retention(seconds=3600).floor(history, 9 * HOUR) == 8
    assert Retention(seconds=3 * 3600 + 1).floor(history, 9 * HOUR) == 5
    assert Retention(seconds=100 * 3600).floor(history, 9 * HOUR) == -1
    assert Retention(epochs=3).floor(history, 0) == 6
    assert Retention().floor(history, 9 * HOUR) == -1
