"""``python -m sketchlearn.cli``."""

from sketchlearn.cli.app import main

main()
