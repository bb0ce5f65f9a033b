"""Programs and functions that run in a child process; see `exchange/guarded.py`.

The modules import the standard library, NumPy and one library that reads a format. They are run as
files and import nothing of this package, whose import takes seconds.
"""
