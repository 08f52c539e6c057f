"""What a loop does inside: its body, compiled; rounds, one after the other; traces whose rows have a round.

Private: it may change from one version to the next.
"""
