"""The way out for all texts: everything that is printed, logged or raised passes through this package.

Private: it may change from one version to the next.
"""
