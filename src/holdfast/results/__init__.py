"""The results that Holdfast gives its users: of epochs, recoveries, a flow's status, and one-off queries.

Private: it may change from one version to the next. (`holdfast` exports its classes.)
"""
