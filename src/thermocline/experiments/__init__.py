"""Experiments are data: a module here states its claim, its runs and its cost, and imports `spec` only."""
