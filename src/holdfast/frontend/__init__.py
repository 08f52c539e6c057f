"""From what the user declares, and from Spark's analysed plan, to Holdfast's own plan.

Private: it may change from one version to the next.
"""
