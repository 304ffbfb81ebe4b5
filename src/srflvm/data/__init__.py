"""Data: from what users give to checked rows and their channels.

`reading` takes arrays, frames, files and AnnData objects, `sources` read rows in pieces, `tables` is the
registry of file formats, `encoding` turns columns into channels, and `compression` finds the leading
directions of columns.

It may import `parallel`, `likelihoods`, `numerics`, `_typing` and `exceptions`.
"""
