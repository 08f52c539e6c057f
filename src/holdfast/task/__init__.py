"""The code that Python workers run: the compiled program, one stage of it, and the messages between stages.

Private: it may change from one version to the next.
"""
