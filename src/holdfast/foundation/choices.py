"""Words that a user chooses among, as types: a type checker refuses any other."""

from __future__ import annotations

from typing import Literal, TypeAlias

OnLoss: TypeAlias = Literal["replay", "terminate", "continue"]
"""What the loss of an executor means, to a flow or to a one-off query."""

EpochPath: TypeAlias = Literal["resident", "task", "stages", "rounds"]
"""In which way an epoch was run."""

Until: TypeAlias = Literal["idle"]
"""When ``flow.run`` ends by itself."""
