"""Files that fail: one seeded plan of faults, carried out in this process (`layer`) or in any real process (`shim`)."""
