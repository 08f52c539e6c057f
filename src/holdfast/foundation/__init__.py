"""Tools that every package may use: checks of arguments, atomic writes, retries, failpoints, processor priority.

Private: it may change from one version to the next.
"""
