"""Kernels: what each operator keeps, and how it turns changes of its inputs into a change of its output.

Private: it may change from one version to the next.
"""
