"""An S3-compatible server on loopback, for tests of what is kept or read there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs as arrow_fs


@contextmanager
def s3_server(bucket: str) -> Iterator[str]:
    """The query part of URIs on the server, which has the bucket."""
    made_up = {"AWS_ACCESS_KEY_ID": "made", "AWS_SECRET_ACCESS_KEY": "up", "AWS_EC2_METADATA_DISABLED": "true"}
    with pytest.MonkeyPatch.context() as environment:
        for key, value in made_up.items():
            environment.setenv(key, value)
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        query = f"endpoint_override={host}:{port}&scheme=http&region=us-east-1"
        root, _ = arrow_fs.FileSystem.from_uri(f"s3://{bucket}?{query}&allow_bucket_creation=true")
        root.create_dir(bucket)
        yield query
        server.stop()
