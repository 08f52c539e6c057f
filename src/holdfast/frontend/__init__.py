"""The frontend: from the user's declarations and Spark's analysed plan to Holdfast's own plan.

Private: it may change from one version to the next.
"""
