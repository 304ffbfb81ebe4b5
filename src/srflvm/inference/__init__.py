"""Inference: from training data to the result of a fit.

`params` holds the checked parameters, `facts` what is known of the data, `plan` what follows from both.
`problems` are data as a fit sees them, `full_batch` and `minibatch` run a fit, `stream` adds rows to one,
`checkpoints` keep its progress, and `result` is what it ends in.

It may import `posterior`, `model`, `data`, `parallel`, `storage.container`, `storage.atomic` and what lies
below them.
"""
