"""The Scaler scheduler: a standalone appliance that distributes the tasks of clients to workers."""

__version__ = "0.1.0"
