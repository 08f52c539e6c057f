"""The demo: the join query of the AMPLab big-data benchmark, maintained while visits arrive."""
