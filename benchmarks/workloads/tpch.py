"""TPC-H: the tables, the 22 queries with the specification's validation parameters, and a stream of refreshes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SCHEMAS = {
    "region": "r_regionkey bigint, r_name string, r_comment string",
    "nation": "n_nationkey bigint, n_name string, n_regionkey bigint, n_comment string",
    "supplier": (
        "s_suppkey bigint, s_name string, s_address string, s_nationkey bigint, s_phone string, "
        "s_acctbal decimal(15,2), s_comment string"
    ),
    "customer": (
        "c_custkey bigint, c_name string, c_address string, c_nationkey bigint, c_phone string, "
        "c_acctbal decimal(15,2), c_mktsegment string, c_comment string"
    ),
    "part": (
        "p_partkey bigint, p_name string, p_mfgr string, p_brand string, p_type string, p_size int, "
        "p_container string, p_retailprice decimal(15,2), p_comment string"
    ),
    "partsupp": (
        "ps_partkey bigint, ps_suppkey bigint, ps_availqty int, ps_supplycost decimal(15,2), ps_comment string"
    ),
    "orders": (
        "o_orderkey bigint, o_custkey bigint, o_orderstatus string, o_totalprice decimal(15,2), o_orderdate date, "
        "o_orderpriority string, o_clerk string, o_shippriority int, o_comment string"
    ),
    "lineitem": (
        "l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber int, l_quantity decimal(15,2), "
        "l_extendedprice decimal(15,2), l_discount decimal(15,2), l_tax decimal(15,2), l_returnflag string, "
        "l_linestatus string, l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct string, "
        "l_shipmode string, l_comment string"
    ),
}

_QUERIES = Path(__file__).parent / "queries" / "tpch"


def queries() -> dict[str, str]:
    """Name → SQL of all queries: ``q01`` … ``q22``."""
    return {path.stem: path.read_text() for path in sorted(_QUERIES.glob("q*.sql"))}


def tables(sql: str) -> list[str]:
    """The tables that a query reads."""
    return [name for name in SCHEMAS if re.search(rf"\b{name}\b", sql)]


def generate(directory: Path, scale: float) -> None:
    """All tables as Parquet files ``<table>.parquet``, the same bytes every time."""
    tool = Path(sys.executable).with_name("tpchgen-cli")
    subprocess.run([tool, "parquet", "-s", str(scale), "--output-dir", directory, "--quiet"], check=True)


def read_table(directory: Path, name: str) -> pa.Table:
    """A generated table, in the types of `SCHEMAS`."""
    table = pq.read_table(directory / f"{name}.parquet")
    kinds = [pa.string() if pa.types.is_string_view(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema([pa.field(name, kind) for name, kind in zip(table.column_names, kinds, strict=True)]))


class Refreshes:
    """What a refresh changes: orders that come and go, with their lineitems, as the specification's refresh functions
    have it, and parts that a supplier has more or fewer of, at another price.

    The generator makes no refresh sets, so some orders are held back from the initial load, and come later; each
    refresh takes as many others away. No row changes twice, whatever the number of refreshes.
    """

    TABLES = ("orders", "lineitem", "partsupp")

    def __init__(self, directory: Path, count: int, share: float = 0.001, seed: int = 1) -> None:
        """``count`` refreshes of a ``share`` of the orders (half of these come, half go) and of the partsupps."""
        self._tables = {name: read_table(directory, name) for name in self.TABLES}
        random = np.random.default_rng(seed)
        keys = self._tables["orders"].column("o_orderkey").to_numpy()
        orders = max(1, round(len(keys) * share / 2))
        self._coming, self._going = random.choice(keys, 2 * count * orders, replace=False).reshape(2, count, orders)
        supplied = self._tables["partsupp"].num_rows
        self._updated = random.choice(supplied, (count, max(1, round(supplied * share))), replace=False)

    def initial(self, name: str) -> pa.Table:
        """The rows of a table before the first refresh."""
        return self._tables[name] if name == "partsupp" else self._without(name, self._coming.ravel())

    def final(self, name: str) -> pa.Table:
        """… and after the last one."""
        if name != "partsupp":
            return self._without(name, self._going.ravel())
        places = self._updated.ravel()
        rest = np.setdiff1d(np.arange(self._tables[name].num_rows), places)
        return pa.concat_tables([self._tables[name].take(rest), _restocked(self._tables[name].take(places))])

    def inserted(self, name: str, number: int) -> pa.Table:
        if name == "partsupp":
            return _restocked(self.deleted(name, number))
        return self._only(name, self._coming[number])

    def deleted(self, name: str, number: int) -> pa.Table:
        if name == "partsupp":
            return self._tables[name].take(self._updated[number])
        return self._only(name, self._going[number])

    def change(self, name: str, number: int) -> pa.Table:
        """A refresh as one table, with ``_diff``."""
        parts = [(self.inserted(name, number), 1), (self.deleted(name, number), -1)]
        return pa.concat_tables(
            [part.append_column("_diff", pa.array(np.full(part.num_rows, diff))) for part, diff in parts]
        )

    def _only(self, name: str, orders: np.ndarray) -> pa.Table:
        return self._tables[name].filter(self._among(name, orders))

    def _without(self, name: str, orders: np.ndarray) -> pa.Table:
        return self._tables[name].filter(pc.invert(self._among(name, orders)))

    def _among(self, name: str, orders: np.ndarray) -> pa.ChunkedArray:
        return pc.is_in(self._tables[name].column(0), pa.array(orders))


def _restocked(rows: pa.Table) -> pa.Table:
    """Rows of partsupp with another quantity and price."""
    quantity = pc.add(rows.column("ps_availqty"), pa.scalar(7, pa.int32()))
    price = pc.multiply(rows.column("ps_supplycost"), pa.scalar(2, pa.int32())).cast(pa.decimal128(15, 2))
    return rows.set_column(2, "ps_availqty", quantity).set_column(3, "ps_supplycost", price)
