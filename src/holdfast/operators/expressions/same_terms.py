"""Which terms Spark takes for the same, and what follows from it for terms that can fail.

Spark's ``semanticEquals`` flattens chains of ``+`` and of ``*`` and forgets the order of their operands; it computes
such twins once, ahead of everything else. So twins written differently may get each other's bits (a + b + c is not
c + b + a in doubles, and overflows elsewhere in integers), and a twin that would not have been looked at, because the
operand before it is NULL, is looked at after all. A stretch with such twins is Spark's to run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from holdfast.operators.expressions.arithmetic import Arithmetic, Divide
from holdfast.operators.expressions.decimals import DecimalArithmetic, DecimalDivide
from holdfast.operators.expressions.terms import ColumnTerm, Compare, Constant, Term

_SUMS_AND_PRODUCTS = (Arithmetic, DecimalArithmetic)


def operands_of(term: Term) -> list[Term]:
    """The operands of a chain of one commutative operator: a, b, c of (a + b) + c. Of anything else, itself."""
    if not isinstance(term, _SUMS_AND_PRODUCTS) or term.operator == "-":
        return [term]
    found: list[Term] = []
    for side in (term.left, term.right):
        # The types of a chain of decimals differ from link to link.
        alike = type(side) is type(term) and (isinstance(term, DecimalArithmetic) or side.type == term.type)
        alike = alike and getattr(side, "operator", "") == term.operator
        found.extend(operands_of(side) if alike else [side])
    return found


def meaning(term: Term) -> str:
    """A text that is equal for all terms that Spark may take for the same."""
    if isinstance(term, ColumnTerm):
        return f"#{term.position}"
    if isinstance(term, Constant):
        return repr(term)
    chain = operands_of(term)
    if len(chain) > 1 and isinstance(term, _SUMS_AND_PRODUCTS):
        return f"({f' {term.operator} '.join(sorted(meaning(operand) for operand in chain))})"
    if isinstance(term, Compare):
        # a > b is b < a to Spark, and a = b is b = a; which operand it looks at first is then its choice.
        sides = [meaning(term.left), meaning(term.right)]
        sides = sorted(sides) if term.operator == "=" else sides[::-1] if term.operator in (">", ">=") else sides
        return f"Compare[{term.operator.replace('>', '<')}]({', '.join(sides)})"
    # Coarser than Spark: the fields that are not operands are left out, but for the operator's name.
    inner = ", ".join(meaning(operand) for operand in term.operands)
    return f"{type(term).__name__}[{getattr(term, 'operator', '')} {term.type}]({inner})"


def same_meaning(left: Term, right: Term) -> bool:
    return meaning(left) == meaning(right)


def has_twins(roots: Sequence[Term]) -> bool:
    """True if some arithmetic among what one pass computes has a twin that makes its result uncertain."""
    seen: dict[str, list[tuple[Term, bool]]] = defaultdict(list)
    for root in roots:
        for term, lazy in _walk(root, lazy=False):
            if isinstance(term, _SUMS_AND_PRODUCTS) or term.raises:
                seen[meaning(term)].append((term, lazy))
    for twins in seen.values():
        if len(twins) < 2:
            continue
        if any(term != twins[0][0] for term, _ in twins):
            return True
        if twins[0][0].raises and any(lazy for _, lazy in twins):
            return True
    return False


def _walk(term: Term, lazy: bool) -> Iterator[tuple[Term, bool]]:
    """Every term below, and whether Spark might not look at it because the operand before it is NULL."""
    yield term, lazy
    second = {Arithmetic: 1, DecimalArithmetic: 1, Compare: 1, Divide: 0, DecimalDivide: 0}.get(type(term))
    for index, operand in enumerate(term.operands):
        yield from _walk(operand, lazy or index == second)
