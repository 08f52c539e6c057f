"""The one way out for texts: whatever is printed, logged or raised passes here.

Private: it may change from one version to the next.
"""
