"""The version of the library: one string, which imports nothing."""

__all__ = ["__version__"]

__version__ = "0.1.0"
