"""Nodes, expressions, rewrites, fingerprints, the dataflow and its stages, and how it is explained.

Private: it may change from one version to the next.
"""
