"""What Holdfast tells its users: of epochs, recoveries and how a flow stands, and of one-off queries."""
