"""What the command line shows, and how it finds the user's flow."""
