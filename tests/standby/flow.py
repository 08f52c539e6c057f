"""The app that the drivers of the tests run: the flow of ``tests/durability/app.py``, over $HOLDFAST_TEST_ROOT."""

from __future__ import annotations

import os
from pathlib import Path

from tests.durability.app import declare

flow = declare(Path(os.environ["HOLDFAST_TEST_ROOT"]), 1)
