"""One-off queries with a policy for the loss of an executor.

Private: it may change from one version to the next.
"""
