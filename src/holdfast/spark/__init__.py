"""All code that uses Spark: sessions, analysis of queries, epoch jobs, reads and membership.

Private: it may change from one version to the next.
"""
