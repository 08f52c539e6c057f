"""Expressions that Spark computes must give the same value whenever they are computed: a replay must repeat them, and a
row that goes must be taken back as it came.

What Spark calls nondeterministic is refused, unless it is drawn (`frontend.placeholders`). So is what depends on the
session, the user or the file that is read, which Spark calls deterministic.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.errors import Unsupported
from holdfast.frontend import unrepeatable_functions
from holdfast.frontend.catalyst.statement import Statement
from holdfast.frontend.catalyst.tree import CatalystExpression

_NAMES = {
    "AesEncrypt": "aes_encrypt",
    "CallMethodViaReflection": "java_method",
    "CurrentCatalog": "current_catalog",
    "CurrentDatabase": "current_database",
    "CurrentPath": "current_path",
    "CurrentTime": "current_time",
    "CurrentTimeZone": "current_timezone",
    "CurrentUser": "current_user",
    "InputFileBlockLength": "input_file_block_length",
    "InputFileBlockStart": "input_file_block_start",
    "InputFileName": "input_file_name",
    "LocalTime": "localtime",
    "MonotonicallyIncreasingID": "monotonically_increasing_id",
    "RandStr": "randstr",
    "SessionUser": "session_user",
    "Shuffle": "shuffle",
    "SparkPartitionID": "spark_partition_id",
    "TryReflect": "try_reflect",
    "Uniform": "uniform",
}
"""Catalyst's classes that are never the same twice, and what SQL calls them."""


def check_repeatable(
    expression: CatalystExpression, statement: Statement, is_hole: Callable[[CatalystExpression], bool]
) -> None:
    """Refuse an expression that may have another value next time. ``is_hole`` tells the parts that are given to it."""
    _check_known(expression, statement, is_hole)
    if not statement.catalyst.is_deterministic(expression):
        culprit = _culprit(expression, statement, is_hole)
        if culprit is not None:
            raise _refused(culprit, statement)


def _check_known(
    expression: CatalystExpression, statement: Statement, is_hole: Callable[[CatalystExpression], bool]
) -> None:
    if is_hole(expression):
        return
    if expression.kind in _NAMES and (expression.kind != "AesEncrypt" or _draws_its_own(expression)):
        raise _refused(expression, statement)
    for child in expression.children:
        # The session's time zone is kept with the view; that it is meant here is not for the user to write.
        if not (expression.kind == "ConvertTimezone" and child.kind == "CurrentTimeZone"):
            _check_known(child, statement, is_hole)


def _draws_its_own(expression: CatalystExpression) -> bool:
    """Is an ``aes_encrypt`` without an initialisation vector?"""
    mode, vector = expression.child("mode"), expression.child("iv")
    while vector.kind == "Cast":
        vector = vector.children[0]
    without = vector.kind == "Literal" and vector.parameters.get("value") == ""
    return without and str(mode.parameters.get("value")).upper() != "ECB"


def _culprit(
    expression: CatalystExpression, statement: Statement, is_hole: Callable[[CatalystExpression], bool]
) -> CatalystExpression | None:
    """The innermost part that is nondeterministic by itself."""
    if is_hole(expression):
        return None
    below = [child for child in expression.children if not statement.catalyst.is_deterministic(child)]
    if not below:
        return expression
    return next((found for child in below if (found := _culprit(child, statement, is_hole)) is not None), None)


def _refused(expression: CatalystExpression, statement: Statement) -> Unsupported:
    name = _NAMES.get(expression.kind) or str(expression.parameters.get("udfName") or expression.kind)
    advice = unrepeatable_functions.INSTEAD.get(name, unrepeatable_functions.INSTEAD_OF_ANY)
    return statement.unsupported(f"the nondeterministic function {name}", expression, advice)
