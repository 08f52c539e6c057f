"""What users test their flows with."""

from holdfast.testing.oracle import Oracle, assert_same_rows

__all__ = ["Oracle", "assert_same_rows"]
