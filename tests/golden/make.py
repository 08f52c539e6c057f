"""Write the golden log of the present format anew: ``python tests/golden/make.py`` (only when the format changes).

A log is kept for each released format; `test_golden.py` reads them all back.
"""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import holdfast as hf
from holdfast.log.header import FORMAT

HERE = Path(__file__).parent
EPOCHS = 14


def declare(log: Path) -> tuple[hf.Flow, hf.Source]:
    """The flow of the golden log."""
    flow = hf.Flow("golden", log=log, partitions=2, retain=6)
    orders = flow.input("orders", "id long, user string, amount decimal(10,2), at timestamp")
    flow.view("spend", "SELECT user, sum(amount) AS total, count(*) AS orders FROM orders GROUP BY user")
    flow.view("top", "SELECT user, total FROM spend ORDER BY total DESC LIMIT 2")
    return flow, orders


def order(epoch: int, number: int) -> tuple[int, str | None, Decimal, datetime]:
    """The orders of an epoch."""
    users = ("ada", "bob", None)
    return 10 * epoch + number, users[number], Decimal(f"{epoch}.{number}5"), datetime(2026, 1, 1 + epoch, tzinfo=UTC)


def main() -> None:
    target = HERE / f"format-{FORMAT}"
    shutil.rmtree(target, ignore_errors=True)
    flow, orders = declare(target / "log")
    expected = {}
    with flow:
        for epoch in range(EPOCHS):
            orders.insert([order(epoch, number) for number in range(3)])
            if epoch:
                orders.delete([order(epoch - 1, 0)])
            flow.step()
            flow.wait_safe()
            rows = [[row.user, str(row.total), row.orders] for row in flow.read("spend").collect()]
            expected[epoch] = sorted(rows, key=str)
    (target / "log" / "lock").unlink()
    (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
