"""The driver of an open flow: epochs, sources, sinks, replication, merging and recovery.

Private: it may change from one version to the next.
"""
