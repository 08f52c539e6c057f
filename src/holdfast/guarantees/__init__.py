"""Strategies that protect results, what operators are, and what a crash can do to output. Pure.

Private: what users touch of it is exported from `holdfast`.
"""
