"""The demo: the join query of the AMPLab big-data benchmark, maintained while visits arrive.

Private: it may change from one version to the next.
"""
