"""fedshot: a laboratory for one-shot federated learning."""

__version__ = "0.1.0"
