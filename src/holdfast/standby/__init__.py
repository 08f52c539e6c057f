"""Leases: of several drivers of one flow, one leads and the others stand by.

A lease decides who *should* lead. That nothing goes wrong when two think that they do (a driver that was paused does
not know that time went by) does not depend on it: claims, digests and sinks see to that (`runtime/replication.py`).

Private: it may change from one version to the next.
"""
