"""Command `srflvm inspect`: describe a model file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from srflvm.cli import options
from srflvm.cli.output import Output


def inspect(model: options.Model, as_json: options.Json = False) -> None:
    """Check a model file and describe the model in it."""
    fitted = options.load_model(model)

    from srflvm.cli.columns import column_facts, column_lines

    facts = _facts(model, fitted)
    width = max(map(len, facts))
    lines = [f"{name.replace('_', ' '):<{width}}  {_text(value)}" for name, value in facts.items()]
    schema = getattr(fitted, "columns_", None)
    if schema is not None:
        lines = [*lines, "", *column_lines(schema)]
    facts["taken_as"] = column_facts(schema)
    Output(as_json=as_json).result("\n".join(lines), facts, always=True)


def _facts(model_file: Path, model: Any) -> dict[str, Any]:
    import numpy as np

    from srflvm.storage.model_file import read_versions

    format_version, library_version = read_versions(model_file)
    names = getattr(model, "feature_names_in_", None)
    return {
        "file": str(model_file),
        "bytes": model_file.stat().st_size,
        "format_version": format_version,
        "written_by": f"srflvm {library_version}",
        "rows": int(model.n_samples_seen_),
        "columns": int(model.n_features_in_),
        "column_names": None if names is None else [str(name) for name in names],
        "components": int(model.embedding_.shape[1]),
        "likelihoods": _likelihoods(model),
        "frequencies": len(model.frequencies_),
        "elbo": float(model.elbo_),
        "sweeps": int(model.n_iter_),
        "ended": _ending(model),
        "start": model.start_,
        "relevance": np.round(model.relevance_, 4).tolist(),
        "likelihood_parameters": {
            name: float(np.nanmean(values)) for name, values in _learned(model).items()
        },
        "settings": _settings(model),
    }


def _ending(model: Any) -> str:
    if model.interrupted_:
        return "interrupted"
    return "converged" if model.converged_ else "all sweeps made"


def _likelihoods(model: Any) -> dict[str, int]:
    """Count the columns of each likelihood."""
    counts: dict[str, int] = {}
    for group in model._posterior.layout.groups:
        counts[group.likelihood.name] = counts.get(group.likelihood.name, 0) + len(group.columns)
    return counts


def _learned(model: Any) -> dict[str, Any]:
    """Return the parameters of likelihoods that were learned, by name."""
    import numpy as np

    noise = {"noise_variance": model.noise_variance_} if hasattr(model, "noise_variance_") else {}
    learned = noise | model.likelihood_parameters_
    return {name: values for name, values in learned.items() if not np.all(np.isnan(values))}


def _settings(model: Any) -> dict[str, Any]:
    """Return the parameters that are not at their defaults."""
    defaults, given = type(model)().get_params(deep=False), model.get_params(deep=False)
    skipped = ("likelihood", "n_components")
    changed = {k: v for k, v in given.items() if k not in skipped and repr(v) != repr(defaults[k])}
    return {k: v if isinstance(v, bool | int | float | str | None) else repr(v) for k, v in changed.items()}


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(single)}" for name, single in value.items()) or "none"
    if isinstance(value, list):
        from srflvm.data.sources import listed

        texts = all(isinstance(single, str) for single in value)
        return listed(value) if texts else ", ".join(map(_text, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)
