"""Leases: of several drivers of one flow, one leads and the others stand by.

A lease decides which driver *should* lead. Correctness does not depend on it: if two drivers believe that they lead (a
driver that was paused does not know that time has passed), claims, digests and sinks keep the flow correct
(`runtime/replication.py`).

Private: it may change from one version to the next.
"""
