"""The command line."""

from sketchlearn.cli.app import main

__all__ = ["main"]
