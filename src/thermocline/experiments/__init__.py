"""Experiments are data: a module here states its claim, its runs and its cost, and imports `spec` only. What holds for all of
a folder is said once, in the docstring of the folder.
"""
