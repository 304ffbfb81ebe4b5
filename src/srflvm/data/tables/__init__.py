"""Tables in files: text, Parquet, NumPy, Zarr and AnnData.

`formats` is the registry of formats, which the command line and `fit(path)` share. Every format is one module
that defines a `Format`; it is imported when a file of that format is opened. This package may import
`data.sources`, `data.sparse`, `storage.atomic`, `_typing` and `exceptions`.
"""
