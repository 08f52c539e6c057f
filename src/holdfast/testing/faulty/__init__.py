"""Files that fail: one seeded plan of faults, met in this process (`layer`) or under real ones (`shim`)."""
