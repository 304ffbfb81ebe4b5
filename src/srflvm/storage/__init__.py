"""Files of the library: writing them whole or not at all, checksums, and the model file.

`atomic` and `container` know nothing of the model, import only each other, and may be used by every package.
`model_file` turns the parameters and fitted attributes of a model into a file and back. It imports
`inference` and the layers below that, never the estimator.
"""
