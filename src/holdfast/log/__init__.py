"""The files of a flow, on disks and in object stores: the working directory, lineage, locations and replicas.

Private: it may change from one version to the next.
"""
