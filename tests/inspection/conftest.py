"""A small real log, made once: two log locations and a working directory, all complete and safe."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf

EPOCHS = 4


@dataclass(frozen=True)
class Shop:
    """The three places of a log, somewhere."""

    root: Path

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def a(self) -> Path:
        return self.root / "a"

    @property
    def b(self) -> Path:
        return self.root / "b"

    @property
    def places(self) -> list[Path]:
        return [self.work, self.a, self.b]

    def flow(self, spark: Any) -> tuple[hf.Flow, Any]:
        flow = hf.Flow("shop", [self.a, self.b], spark, 2, min_replicas=2, local=self.work)
        orders = flow.input("orders", "id long, user string, amount double")
        flow.view("spend", "SELECT user, sum(amount) AS total FROM orders GROUP BY user")
        flow.view("top", "SELECT user, total FROM spend ORDER BY total DESC LIMIT 2")
        return flow, orders

    def bytes(self) -> dict[str, bytes]:
        """Every file, but the lock, which names who held it last."""
        files = (path for path in self.root.rglob("*") if path.is_file() and path.name != "lock")
        return {str(path.relative_to(self.root)): path.read_bytes() for path in files}


@pytest.fixture(scope="session")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    shop = Shop(tmp_path_factory.mktemp("shop"))
    flow, orders = shop.flow(spark)
    with flow:
        for epoch in range(EPOCHS):
            orders.insert([(epoch, f"u{epoch % 3}", 1.0 + epoch), (100 + epoch, "u9", 0.5)])
            flow.step()
            flow.wait_safe(timeout=120)  # so that each epoch is a layer of its own, in both locations
    return shop


@pytest.fixture
def shop(made: Shop, tmp_path: Path) -> Shop:
    """A copy of the log, to damage."""
    shutil.copytree(made.root, tmp_path / "shop")
    return Shop(tmp_path / "shop")


def layer(place: Path, epoch: int = 1, view: str = "spend") -> Path:
    """A layer of one epoch of a view."""
    mark = json.loads((place / "collections.json").read_text())["collections"][view]["fingerprint"]
    folder = "traces" if (place / "traces").is_dir() else "layers"
    return next(iter(sorted((place / folder / f"{mark}.rows").glob(f"{epoch:012d}-{epoch:012d}-*"))))


def flip(path: Path, at: float = 0.5) -> None:
    """Change one bit."""
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 1
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def segment(place: Path, epoch: int) -> Path:
    return next((place / "lineage").glob(f"*-{epoch:012d}-*.jsonl"))
