"""The inside of a loop: its compiled body, its rounds, and traces whose rows have a round.

Private: it may change from one version to the next.
"""
