"""Avro files, written by Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

AVRO = "org.apache.spark.sql.avro.AvroFileFormat"


def write_avro(rows: DataFrame, path: Path, fields: list[dict[str, Any]] | None = None, **options: str) -> None:
    """Write one file at ``path``; ``fields``: with these Avro types, which Spark need not have chosen by itself."""
    beside = path.parent / f"_{path.name}"
    if fields is not None:
        options["avroSchema"] = json.dumps({"type": "record", "name": "line", "fields": fields})
    rows.coalesce(1).write.format(AVRO).options(**options).save(str(beside))
    [part] = beside.glob("*.avro")
    part.rename(path)
    shutil.rmtree(beside)
