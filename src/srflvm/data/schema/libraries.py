"""Frames of pandas, polars and pyarrow, and those that the command line reads from files.

Each library has an adapter, a `_Library`, that reads the columns of its frames as entries and makes columns
and frames of numbers and levels. A library is not imported unless a frame of it is given or asked for.
"""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from srflvm._typing import FloatArray
from srflvm.data.schema.entries import (
    _Entries,
    _finite,
    _Label,
    _Labels,
    _objects,
    _of_categories,
    _of_objects,
    _other_type,
    _plain,
    _refuse_times,
)
from srflvm.data.sources import is_frame, listed
from srflvm.data.tables.frame import ArrowEntries, Entries, Frame
from srflvm.exceptions import DataError

if TYPE_CHECKING:
    from srflvm.data.schema import Column


def _library_of(frame: Any) -> _Library:
    """Return the library that a frame belongs to."""
    for library in _LIBRARIES.values():
        if library.owns(frame):
            return library
    raise TypeError(
        f"Expected a pandas DataFrame, a polars DataFrame or a pyarrow Table, not {type(frame).__name__}."
    )


class _Library:
    """Read and make frames of one library. A column that is read or made is called a part here."""

    name: str
    unknown = "use unknown_levels='missing'"

    @property
    def module(self) -> Any:
        """Return the module of the library."""
        return importlib.import_module(self.name)

    def owns(self, frame: Any) -> bool:
        """Tell whether something is a frame of this library, without importing it."""
        return is_frame(frame, self.name)

    def names(self, frame: Any) -> list[Any]:
        """Return the names of the columns."""
        return list(frame.columns)

    def n_rows(self, frame: Any) -> int:
        """Return the number of rows."""
        return frame.shape[0]

    def column(self, frame: Any, place: int) -> Any:
        """Return the part at a place."""
        raise NotImplementedError

    def dtype(self, part: Any) -> str:
        """Return the type of a part as text, from which `new` makes it again."""
        return str(part.dtype)

    def holds_anything(self, part: Any) -> bool:
        """Tell whether the type of a part sets no limit to its entries."""
        return False

    def drop(self, name: Any) -> str:
        """Return the code that leaves out a column, for a message."""
        raise NotImplementedError

    def keep(self, name: Any) -> str:
        """Return how to keep a column that looks like one of identifiers, for a message."""
        return f"To keep it as it is, name it in likelihood={{{name!r}: 'categorical'}}."

    def read(self, part: Any, label: _Label) -> _Entries:
        """Return the entries of a part, or refuse its type."""
        raise NotImplementedError

    def new(self, column: Column, fills: np.ndarray, dtype: str) -> Any:
        """Return a part of a type with the given entries."""
        raise NotImplementedError

    def fill(self, part: Any, mask: np.ndarray, fills: np.ndarray, column: Column, label: _Label) -> Any:
        """Return a part with `fills` where `mask` is true."""
        raise NotImplementedError

    def with_columns(self, frame: Any, parts: Mapping[int, Any]) -> Any:
        """Return a frame with other parts at some places."""
        raise NotImplementedError

    def frame(self, names: Sequence[Any], parts: Sequence[Any]) -> Any:
        """Return a frame of parts."""
        raise NotImplementedError

    def floats(self, names: Sequence[str], values: FloatArray, like: Any) -> Any:
        """Return a frame of floats (n, K) with the index of `like`."""
        raise NotImplementedError


class _Pandas(_Library):
    name = "pandas"

    def column(self, frame: Any, place: int) -> Any:
        return frame.iloc[:, place]

    def dtype(self, part: Any) -> str:
        is_ordered = _is_category(part) and part.dtype.ordered
        return "ordered category" if is_ordered else str(part.dtype)

    def holds_anything(self, part: Any) -> bool:
        return part.dtype == object

    def drop(self, name: Any) -> str:
        return f"frame.drop(columns=[{name!r}])"

    def read(self, part: Any, label: _Label) -> _Entries:
        if _is_of_arrow(part):
            return _ARROW.read(_ARROW.of_pandas(part), label)
        if _is_category(part):
            places = part.cat.codes.to_numpy(np.int64)
            return _of_categories(places, list(part.cat.categories), bool(part.cat.ordered), label)
        kind = part.dtype.kind
        if kind in "biuf":
            values = part.to_numpy(dtype=np.float64, na_value=np.nan)
            return _finite(values, {"b": "truth", "f": "float"}.get(kind, "integer"), label)
        _refuse_times(label, kind in "mM" or str(part.dtype).startswith("period"))
        if kind not in "OU" or str(part.dtype).startswith("interval"):
            raise _other_type(label, str(part.dtype))
        return self._read_objects(part, label)

    def _read_objects(self, part: Any, label: _Label) -> _Entries:
        try:
            places, values = part.factorize()
        except TypeError:  # lists and dictionaries have no hash
            row = next(row for row, value in enumerate(part) if not _is_hashable(value))
            raise _other_type(label, type(part.iloc[row]).__name__) from None
        places = np.asarray(places, np.int64)
        is_empty_text = part.dtype != object and len(values) == 0
        return _Labels(places, (), "text") if is_empty_text else _of_objects(places, list(values), label)

    def new(self, column: Column, fills: np.ndarray, dtype: str) -> Any:
        pandas = self.module
        if dtype.endswith("[pyarrow]"):
            return self._of_arrow(_ARROW.new(column, fills, dtype.removesuffix("[pyarrow]")))
        if dtype.endswith("category") and column.levels is not None:
            ordered = dtype.startswith("ordered")
            return pandas.Series(pandas.Categorical(fills, categories=column.levels, ordered=ordered))
        if dtype.endswith("category"):
            return pandas.Series(fills.astype(float))
        if dtype in ("object", "str", "string"):
            kind = pandas.StringDtype(na_value=np.nan) if dtype == "str" else dtype
            return pandas.Series(_scalars(column, fills), dtype=kind)
        return pandas.Series(_typed(fills, dtype)).astype(dtype)

    def fill(self, part: Any, mask: np.ndarray, fills: np.ndarray, column: Column, label: _Label) -> Any:
        pandas = self.module
        if _is_of_arrow(part):
            return self._of_arrow(_ARROW.fill(_ARROW.of_pandas(part), mask, fills, column, label))
        if _is_category(part):
            return self._fill_categories(part, mask, fills, label)
        text = self.dtype(part)
        is_sparse = text.startswith("Sparse")
        result = part.sparse.to_dense() if is_sparse else part.copy()
        holds_objects = part.dtype.kind in "OU"
        values = _scalars(column, fills) if holds_objects else _typed(fills, text)
        result.iloc[np.flatnonzero(mask)] = pandas.Series(values, dtype=result.dtype).array
        return result.astype(part.dtype) if is_sparse else result

    def _fill_categories(self, part: Any, mask: np.ndarray, fills: np.ndarray, label: _Label) -> Any:
        pandas = self.module
        categories = [_plain(value) for value in part.cat.categories]
        wanted = _in_categories(fills, categories)
        added = [level for level in dict.fromkeys(wanted) if level not in categories]
        if added:
            _refuse_new_categories(part.cat.categories, categories, added, label)
            part = part.cat.add_categories(added)
        codes = part.cat.codes.to_numpy(np.int64, copy=True)
        codes[mask] = _places_in([*categories, *added], wanted)
        return pandas.Series(pandas.Categorical.from_codes(codes, dtype=part.dtype))

    def _of_arrow(self, chunked: Any) -> Any:
        return self.module.Series(self.module.arrays.ArrowExtensionArray(chunked))

    def with_columns(self, frame: Any, parts: Mapping[int, Any]) -> Any:
        result = frame.copy()
        for place, part in parts.items():
            result.isetitem(place, part.array)  # without the index, by which pandas would align it
        return result

    def frame(self, names: Sequence[Any], parts: Sequence[Any]) -> Any:
        result = self.module.concat(list(parts), axis=1)
        result.columns = self.module.Index(list(names))
        return result

    def floats(self, names: Sequence[str], values: FloatArray, like: Any) -> Any:
        return self.module.DataFrame(values, columns=list(names), index=like.index)


def _is_category(part: Any) -> bool:
    return hasattr(part.dtype, "categories")


def _is_of_arrow(part: Any) -> bool:
    return hasattr(part.dtype, "pyarrow_dtype")


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _in_categories(fills: np.ndarray, categories: Sequence[Any]) -> list[Any]:
    """Return fills of a column of categories: levels as they are, other numbers as the nearest category."""
    if fills.dtype == object:
        return fills.tolist()
    numbers_of = np.array(categories, dtype=np.float64)
    nearest = np.abs(fills[:, None] - numbers_of[None, :]).argmin(axis=1)
    return [categories[place] for place in nearest]


def _places_in(values: Sequence[Any], wanted: Sequence[Any]) -> np.ndarray:
    """Return where each of the wanted values is."""
    place = {value: place for place, value in enumerate(values)}
    return np.array([place[value] for value in wanted], dtype=np.int64)


def _refuse_new_categories(values: Any, plain: Sequence[Any], added: Sequence[Any], label: _Label) -> None:
    """Refuse to add levels to categories that are known by their texts only, such as intervals."""
    if any(value != text for value, text in zip(values, plain, strict=True)):
        raise DataError(
            f"{label} has no category {listed(added)}, which the training data had. Give it the categories "
            "of the training column."
        )


class _Polars(_Library):
    name = "polars"

    def column(self, frame: Any, place: int) -> Any:
        return frame.to_series(place)

    def dtype(self, part: Any) -> str:
        # the categories of an Enum are its levels, and may be many
        return "Enum" if self._is_enum(part) else str(part.dtype)

    def drop(self, name: Any) -> str:
        return f"frame.drop([{name!r}])"

    def _is_enum(self, part: Any) -> bool:
        return isinstance(part.dtype, self.module.Enum)

    def read(self, part: Any, label: _Label) -> _Entries:
        polars, dtype = self.module, part.dtype
        if dtype == polars.Null:
            return _Labels(np.full(len(part), -1), (), "empty")
        if dtype.is_numeric() or dtype == polars.Boolean:
            form = "truth" if dtype == polars.Boolean else "integer" if dtype.is_integer() else "float"
            return _finite(part.cast(polars.Float64).to_numpy(), form, label)
        if self._is_enum(part):
            return _Labels(self._physical(part), tuple(dtype.categories.to_list()), "category", True)
        if isinstance(dtype, polars.String | polars.Categorical):
            texts = part.cast(polars.String)
            values = texts.drop_nulls().unique().sort()
            places = self._physical(texts.cast(polars.Enum(values)))
            # the order of categories is that in which this process has met them
            return _Labels(places, tuple(values.to_list()), "text")
        _refuse_times(label, dtype.is_temporal())
        raise _other_type(label, str(dtype))

    def _physical(self, part: Any) -> np.ndarray:
        return part.to_physical().cast(self.module.Int64).fill_null(-1).to_numpy()

    def new(self, column: Column, fills: np.ndarray, dtype: str) -> Any:
        polars = self.module
        if dtype == "Enum":
            return self._made(fills, polars.Enum(list(column.levels or ())))
        kind = getattr(polars, dtype.partition("(")[0])
        return self._made(fills, kind(*_parameters(dtype)) if kind == polars.Decimal else kind())

    def _made(self, fills: np.ndarray, dtype: Any) -> Any:
        polars = self.module
        if isinstance(dtype, polars.String | polars.Categorical | polars.Enum):
            return polars.Series(fills.tolist(), dtype=polars.String).cast(dtype)
        return polars.Series(_typed(fills, str(dtype))).cast(dtype)

    def fill(self, part: Any, mask: np.ndarray, fills: np.ndarray, column: Column, label: _Label) -> Any:
        dtype = part.dtype
        if self._is_enum(part):
            known = dtype.categories.to_list()
            added = [level for level in dict.fromkeys(fills) if level not in known]
            dtype = self.module.Enum([*known, *added]) if added else dtype
        spread = self._made(fills, dtype).gather(_spread(mask))
        return part.cast(dtype).zip_with(self.module.Series(~mask), spread)

    def with_columns(self, frame: Any, parts: Mapping[int, Any]) -> Any:
        names = frame.columns
        return frame.with_columns([part.alias(names[place]) for place, part in parts.items()])

    def frame(self, names: Sequence[Any], parts: Sequence[Any]) -> Any:
        return self.module.DataFrame([part.alias(str(name)) for name, part in zip(names, parts, strict=True)])

    def floats(self, names: Sequence[str], values: FloatArray, like: Any) -> Any:
        return self.module.DataFrame(values, schema=list(names))


def _spread(mask: np.ndarray) -> np.ndarray:
    """Return which of the fills stands at each row; any of them where the mask is not true."""
    return np.maximum(np.cumsum(mask) - 1, 0)


class _Arrow(_Library):
    name = "pyarrow"

    def names(self, frame: Any) -> list[Any]:
        return frame.column_names

    def column(self, frame: Any, place: int) -> Any:
        return frame.column(place)

    def dtype(self, part: Any) -> str:
        return str(part.type)

    def drop(self, name: Any) -> str:
        return f"table.drop_columns([{name!r}])"

    def of_pandas(self, part: Any) -> Any:
        """Return a pandas column of a type of this library as a part."""
        array = self.module.array(part)
        return array if hasattr(array, "chunks") else self.module.chunked_array([array])

    def read(self, part: Any, label: _Label) -> _Entries:
        types, kind = self.module.types, part.type
        if types.is_null(kind):
            return _Labels(np.full(len(part), -1), (), "empty")
        if (
            types.is_boolean(kind)
            or types.is_integer(kind)
            or types.is_floating(kind)
            or types.is_decimal(kind)
        ):
            form = "truth" if types.is_boolean(kind) else "integer" if types.is_integer(kind) else "float"
            return _finite(part.cast(self.module.float64(), safe=False).to_numpy(), form, label)
        if types.is_dictionary(kind) and self._is_plain(kind.value_type):
            places, values = self._factorised(part)
            return _of_categories(places, values, kind.ordered, label)
        if self._is_text(kind):
            places, values = self._factorised(part.dictionary_encode())
            return _Labels(places, tuple(values), "text")
        _refuse_times(label, types.is_temporal(kind))
        raise _other_type(label, str(kind))

    def _is_plain(self, kind: Any) -> bool:
        return self.module.types.is_primitive(kind) or self._is_text(kind)

    def _is_text(self, kind: Any) -> bool:
        types = self.module.types
        return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)

    def _factorised(self, part: Any) -> tuple[np.ndarray, list[Any]]:
        """Return places and values of a part that is encoded by dictionaries.

        Its chunks may have different ones, and a dictionary may itself hold null or NaN.
        """
        known: dict[Any, int] = {}
        parts = [np.empty(0, np.int64)]
        for chunk in part.chunks:
            values = chunk.dictionary.to_pylist()
            is_null = [value is None or value != value for value in values]
            moved = [
                -1 if null else known.setdefault(value, len(known))
                for value, null in zip(values, is_null, strict=True)
            ]
            places = chunk.indices.cast(self.module.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
            parts.append(np.array([*moved, -1])[places])
        return np.concatenate(parts), list(known)

    def new(self, column: Column, fills: np.ndarray, dtype: str) -> Any:
        pyarrow = self.module
        if dtype.startswith("dictionary"):
            if column.levels is None:
                return self._made(fills, pyarrow.float64())
            values, indices = map(pyarrow.type_for_alias, re.findall(r"=(\w+),", dtype))
            kind = pyarrow.dictionary(indices, values, "ordered=1" in dtype)
            return self._encoded(_places_in(column.levels, fills.tolist()), column.levels, kind)
        if dtype.startswith("decimal"):
            kind = getattr(pyarrow, dtype.partition("(")[0])(*_parameters(dtype))
        else:
            kind = pyarrow.type_for_alias(dtype)
        return self._made(fills, kind)

    def _made(self, fills: np.ndarray, kind: Any) -> Any:
        pyarrow = self.module
        if self._is_text(kind):
            return pyarrow.chunked_array([pyarrow.array(fills.tolist(), kind)])
        return pyarrow.chunked_array([pyarrow.array(_typed(fills, str(kind)))]).cast(kind, safe=False)

    def fill(self, part: Any, mask: np.ndarray, fills: np.ndarray, column: Column, label: _Label) -> Any:
        pyarrow, kind = self.module, part.type
        if pyarrow.types.is_dictionary(kind):
            return self._fill_dictionary(part, mask, fills)
        compute = importlib.import_module("pyarrow.compute")
        # views of texts lack the function below
        working = pyarrow.large_string() if self._is_text(kind) else kind
        spread = self._made(fills, working).take(pyarrow.array(_spread(mask)))
        return compute.if_else(pyarrow.array(~mask), part.cast(working), spread).cast(kind)

    def _fill_dictionary(self, part: Any, mask: np.ndarray, fills: np.ndarray) -> Any:
        places, known = self._factorised(part)
        wanted = _in_categories(fills, known)
        values = [*known, *(level for level in dict.fromkeys(wanted) if level not in known)]
        places[mask] = _places_in(values, wanted)
        return self._encoded(places, values, part.type)

    def _encoded(self, places: np.ndarray, values: Sequence[Any], kind: Any) -> Any:
        """Return a part that is encoded by a dictionary, null where a place is -1."""
        pyarrow = self.module
        indices = pyarrow.array(places, kind.index_type, mask=places < 0)
        dictionary = pyarrow.array(values, kind.value_type)
        array = pyarrow.DictionaryArray.from_arrays(indices, dictionary, ordered=kind.ordered)
        return pyarrow.chunked_array([array])

    def with_columns(self, frame: Any, parts: Mapping[int, Any]) -> Any:
        fields, columns = list(frame.schema), frame.columns
        for place, part in parts.items():
            fields[place], columns[place] = fields[place].with_type(part.type), part
        schema = self.module.schema(fields, metadata=frame.schema.metadata)
        return self.module.Table.from_arrays(columns, schema=schema)

    def frame(self, names: Sequence[Any], parts: Sequence[Any]) -> Any:
        return self.module.table(list(parts), names=[str(name) for name in names])

    def floats(self, names: Sequence[str], values: FloatArray, like: Any) -> Any:
        return self.module.table(list(np.ascontiguousarray(values.T)), names=list(names))


def _parameters(dtype: str) -> list[int]:
    """Return the parameters of a type of decimal numbers, from its text."""
    return [int(number) for number in re.findall(r"\d+", dtype.partition("(")[2])]


class _Files(_Library):
    """Read and make frames of files on the command line; parts of Parquet files are those of pyarrow."""

    name = "file"
    unknown = "give --unknown-levels missing"

    def column(self, frame: Any, place: int) -> Any:
        return frame.parts[place]

    def dtype(self, part: Any) -> str:
        return _ARROW.dtype(part.chunked) if isinstance(part, ArrowEntries) else part.form

    def drop(self, name: Any) -> str:
        return f"--leave-out {shlex.quote(str(name))}"

    def keep(self, name: Any) -> str:
        option = shlex.quote(str(name))
        likelihood = shlex.quote(f"{name}=categorical")
        return f"If it names the rows, give --id-column {option}; to keep it, --column {likelihood}."

    def read(self, part: Any, label: _Label) -> _Entries:
        if isinstance(part, ArrowEntries):
            return _ARROW.read(part.chunked, label)
        if part.has_texts:
            places, values = part.places()
            return _Labels(places, values, "text")
        if part.is_missing().all():
            return _Labels(np.full(len(part), -1), (), "empty")
        return _finite(part.floats(), "truth" if part.form == "bool" else "float", label)

    def new(self, column: Column, fills: np.ndarray, dtype: str) -> Any:
        return Entries.of(fills.tolist())

    def fill(self, part: Any, mask: np.ndarray, fills: np.ndarray, column: Column, label: _Label) -> Any:
        if isinstance(part, ArrowEntries):
            return ArrowEntries(_ARROW.fill(part.chunked, mask, fills, column, label))
        return part.filled(mask, fills.tolist())

    def with_columns(self, frame: Any, parts: Mapping[int, Any]) -> Any:
        return frame.with_parts(parts)

    def frame(self, names: Sequence[Any], parts: Sequence[Any]) -> Any:
        return Frame(tuple(names), tuple(parts))

    def floats(self, names: Sequence[str], values: FloatArray, like: Any) -> Any:
        return Frame.of_numbers(names, values)


# ---- fills of a type -------------------------------------------------------------------------------


def _scalars(column: Column, fills: np.ndarray) -> np.ndarray:
    """Return fills as objects: Python scalars, whole numbers as int."""
    is_whole = column.levels is None and column.fills_levels
    return _objects([int(value) for value in fills] if is_whole else fills.tolist())


# Signed and unsigned integers with a limit, in the names of types of all libraries.
_INTEGERS = re.compile(r"\b(u?int(?:8|16|32|64))\b")


def _typed(fills: np.ndarray, dtype: str) -> np.ndarray:
    """Return fills as numbers that a type, of which the text is given, can hold."""
    values = fills.astype(np.float64)
    text = dtype.lower()
    found = _INTEGERS.search(text)
    if found:
        limits = np.iinfo(found.group(1))
        # the largest float that does not overflow; what it has behind the point is cut off
        highest = np.nextafter(float(limits.max) + 1.0, 0.0)
        return np.clip(np.rint(values), float(limits.min), highest).astype(limits.dtype)
    if "bool" in text:
        return values >= 0.5
    return np.rint(values) if "int" in text else values


_ARROW = _Arrow()
_LIBRARIES: dict[str, _Library] = {
    library.name: library for library in (_Pandas(), _Polars(), _ARROW, _Files())
}
