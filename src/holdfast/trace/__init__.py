"""Traces: hashing, immutable layers, covers of epochs, search and merging.

Private: it may change from one version to the next.
"""
