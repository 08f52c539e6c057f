"""What the command line shows, and how it finds the user's flow.

Private: it may change from one version to the next.
"""
