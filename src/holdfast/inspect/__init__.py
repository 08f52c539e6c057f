"""A log seen without Spark and without opening it: status, rows, plans, verification and repair.

Private: it may change from one version to the next.
"""
