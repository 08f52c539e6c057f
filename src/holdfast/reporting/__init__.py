"""The one way out for texts: whatever is printed, logged, warned of or raised passes here."""
