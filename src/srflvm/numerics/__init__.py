"""Mathematics on arrays: it knows no data, no model and no process.

The package imports nothing of `srflvm` but `_typing` and `exceptions`, and its modules hardly import each
other.
"""
