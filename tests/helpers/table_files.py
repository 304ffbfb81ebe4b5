"""Tables written to files of several formats, each opened as a user would."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zarr


def npy(folder, Y):
    np.save(folder / "Y.npy", Y)
    return folder / "Y.npy"


def memmap(folder, Y):
    return np.load(npy(folder, Y), mmap_mode="r")


def zarr_folder(folder, Y, **options):
    chunks = {"chunks": (9, 4)} | options
    zarr.create_array(folder / "Y.zarr", data=np.ascontiguousarray(Y), **chunks)
    return folder / "Y.zarr"


def parquet(folder, Y, row_group_size=37):
    columns = {f"c{m}": np.ascontiguousarray(Y[:, m]) for m in range(Y.shape[1])}
    pq.write_table(pa.table(columns), folder / "Y.parquet", row_group_size=row_group_size)
    return folder / "Y.parquet"
