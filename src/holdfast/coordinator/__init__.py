"""Decisions, without threads, files, clocks or Spark: epochs, lineage, recovery plans, retention, membership.

Private: it may change from one version to the next.
"""
