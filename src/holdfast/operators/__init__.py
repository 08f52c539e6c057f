"""Operators: the state each one keeps, and the kernels that turn changes of its inputs into a change of its output.

Private: it may change from one version to the next.
"""
