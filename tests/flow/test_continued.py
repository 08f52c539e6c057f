"""What a flow's handle does about an engine that is approximate. (What the engine does: tests/simulator.)"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast as hf
from holdfast.errors import DeclarationError, SinkError
from holdfast.results.flow_results import Approximation, Epoch
from holdfast.results.query_results import Coverage
from holdfast.runtime.recovery.record import RecoveryRecord
from holdfast.terminal.live import Jsonl, Lines, Progress


class Approximate:
    """An engine that has lost something, and cannot be repaired before ``mended``."""

    def __init__(self, local: Path) -> None:
        self.declared = SimpleNamespace(local=local)
        self.approximate: Approximation | None = said()
        self.recovery = RecoveryRecord()
        self.mended = self.closed = False

    def repair(self) -> RecoveryRecord | None:
        if self.approximate is None:
            return None
        if not self.mended:
            raise SinkError("the sink is full")
        self.approximate = None
        self.recovery.repaired = [4]
        return self.recovery

    def close(self, reopens: bool = False) -> None:
        try:
            self.repair()
        finally:
            self.closed = True


def said() -> Approximation:
    return Approximation(4, Coverage(6, 8, 30, 40), (1, 5), ("m1",), ("orders",), ("spend",))


def _flow(tmp_path: Path) -> tuple[hf.Flow, Any]:
    flow = hf.Flow("shop", tmp_path, on_loss="continue")
    flow.input("orders", "user bigint, amount bigint")
    engine: Any = Approximate(tmp_path)
    flow._engine = engine
    return flow, engine


def test_an_unknown_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="on_loss must be 'replay', 'terminate' or 'continue', not 'ignore'"):
        hf.Flow("shop", tmp_path, on_loss="ignore")


def test_a_declaration_repairs_first_and_takes_effect_when_that_is_done(tmp_path: Path) -> None:
    flow, engine = _flow(tmp_path)
    with pytest.raises(SinkError, match="the sink is full"):
        flow.input("users", "user bigint")
    assert flow.approximate is not None and not engine.closed
    with pytest.raises(SinkError, match="the sink is full"):
        flow.step()  # not by an engine that does not know what is declared
    engine.mended = True
    flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
    assert flow.approximate is None and engine.closed
    assert flow.last_recovery is not None and flow.last_recovery.repaired == (4,)


def test_a_flow_that_cannot_be_repaired_is_closed_all_the_same(tmp_path: Path) -> None:
    flow, engine = _flow(tmp_path)
    with pytest.raises(SinkError, match="the sink is full"):
        flow.close()
    assert engine.closed
    with pytest.raises(DeclarationError, match="is closed"):
        flow.step()


def test_an_approximate_epoch_says_so_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    epoch, progress = Epoch(4, {"spend": 2}, approximate=said()), Progress()
    progress.add(epoch)
    console = Console(width=200)
    Lines(console, "shop", progress).shown(epoch)
    Jsonl(console, "shop", progress).shown(epoch)
    line, data = capsys.readouterr().out.splitlines()
    assert "approximate since epoch 4: 6 of 8 partitions, 30 of 40 rows" in line
    assert '"approximate": {"since": 4, "coverage": {"partitions": 6, "partitions_total": 8' in data
    assert "approximate since epoch 4" in repr(epoch)
