"""Benchmark of the paper: its other systems, its data, and its tables as the command `srflvm bench`.

- `baselines`: the systems that the paper compares with, by name.
- `datasets`: the loaders of the paper's data.
- `tasks` plans the fits of a table, `runner` starts each in a process of its own (`worker`), `store` keeps
  the outcomes, `tables` and `report` write them beside the numbers of the paper (`paper`), and `pictures`
  draws them.
- `command` adds `srflvm bench` and `srflvm datasets` to the command line, by entry points.

The package uses `srflvm` as its users do, and never the other way round: `srflvm` does not import it. Beyond
the public interface the baselines share the mathematics of `srflvm.numerics` and `srflvm.likelihoods`, and
RFLVM also the start of a fit (`srflvm.inference.starts`), so that both models begin at the same latents.
"""
