"""A real flow with secrets in its addresses: none is in anything that it says, nor in Spark's event log."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs as arrow_fs

KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalr/XUtn+FEMIbPxRfi"
_COMMAND_LINE = "from holdfast.cli import main; main()"
SECRETS = (KEY, "wJalr", "FEMIbPxRfi", "t0psecret", "d3legated")


@pytest.fixture(scope="module")
def query() -> Iterator[str]:
    """The query part of URIs on an S3-compatible server, which has two buckets."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    found = f"endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    root, _ = arrow_fs.FileSystem.from_uri(f"s3://{KEY}:secret@copies?{found}&allow_bucket_creation=true")
    root.create_dir("copies")
    root.create_dir("leaving")
    yield found
    server.stop()


def found_in(data: bytes) -> set[str]:
    """The secrets in some bytes: as they are, or packed as job properties were."""
    found = {secret for secret in SECRETS if secret.encode() in data}
    for one in re.findall(rb"[A-Za-z0-9+/]{24,}", data):
        unpacked = base64.b64decode(one[: len(one) // 4 * 4])
        found |= {secret for secret in SECRETS if secret.encode() in unpacked}
    return found


@pytest.mark.slow
def test_no_output_of_a_flow_and_no_event_log_has_a_secret_in_it(query: str, tmp_path: Path) -> None:
    for name in ("in", "events", "members"):
        (tmp_path / name).mkdir()
    escaped = SECRET.replace("/", "%2F").replace("+", "%2B")
    good = f"s3://{KEY}:{escaped}@copies/log?{query}"
    given = {
        "home": str(tmp_path),
        "good": good,
        "gone": f"s3://{KEY}:{escaped}@leaving/log?{query}",
        "unescaped": f"s3://{KEY}:{SECRET}@copies/log?{query}",
        "wrong": "webhdfs://127.0.0.1:1/log?delegation=d3legated-token",
        "database": "postgresql://me:t0psecret@db/orders?sslkey=t0psecret-key",
        "lease": "zk://me:t0psecret@127.0.0.1:1/flows",
    }
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith("AWS_")},
        "AWS_EC2_METADATA_DISABLED": "true",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "LEAKY": json.dumps(given),
        # Layers of each member's own: then tasks need the log's locations.
        "HOLDFAST_LOCAL": str(tmp_path / "members"),
    }
    run = [sys.executable, str(Path(__file__).with_name("leaky.py"))]
    done = subprocess.run(run, env=environment, capture_output=True, timeout=300)
    said = done.stdout.decode() + done.stderr.decode()
    assert done.returncode == 0, said[-5000:]
    # It went as it was meant to: some of it worked, some failed.
    assert "Row(user='ada', total=5)" in said and "step -> Epoch(" in said
    for failure in (
        "BadFile",
        "EvaluationError",
        "no such bucket",
        "percent-encoded",
        "webhdfs",
        "cannot reach",
        "zk://",
    ):
        assert failure in said, failure
    for command in ("status", "verify"):
        for options in ([], ["--json"]):
            called = [sys.executable, "-c", _COMMAND_LINE, command, *options, good, given["gone"]]
            shown = subprocess.run(
                called, env={**environment, "HOLDFAST_TRACEBACK": "1"}, capture_output=True, timeout=60
            )
            assert found_in(shown.stdout + shown.stderr) == set(), called
    assert found_in(said.encode()) == set()
    # Everything that was written: the working directory, the members' layers, Spark's event log.
    events = list((tmp_path / "events").rglob("*"))
    assert any(b"SparkListenerJobStart" in each.read_bytes() for each in events if each.is_file())
    for path in tmp_path.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert found_in(gzip.decompress(data) if path.suffix == ".gz" else data) == set(), path
    files, _ = arrow_fs.FileSystem.from_uri(good)
    for info in files.get_file_info(arrow_fs.FileSelector("copies", recursive=True)):
        if info.type == arrow_fs.FileType.File:
            with files.open_input_file(info.path) as blob:
                assert found_in(info.path.encode() + blob.read()) == set(), info.path
