"""The words that a user can choose among, as types: a type checker refuses any other word."""

from __future__ import annotations

from typing import Literal, TypeAlias

OnLoss: TypeAlias = Literal["replay", "terminate", "continue"]
"""What a flow or a one-off query does when an executor is lost."""

EpochPath: TypeAlias = Literal["resident", "task", "stages", "rounds"]
"""How an epoch was run."""

Until: TypeAlias = Literal["idle"]
"""When ``flow.run`` ends by itself."""
