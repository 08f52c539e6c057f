"""What Holdfast tells its users: of epochs, recoveries and how a flow stands, and of one-off queries.

Private: it may change from one version to the next. (`holdfast` exports its classes.)
"""
