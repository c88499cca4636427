"""Plans as people write them: a mapping, or a file of TOML.

epsilon = 2.0
mechanism = "hm-j"          # may be left out, as all of the following
k = 2                       # columns that a row reports
on_null = "error"           # or "drop" or "category"

[columns.age]
lower = 0
upper = 100

[columns.fuel]
categories = ["gas", "oil", "none"]

[options]                   # further parameters of the mechanism
n_levels = 16
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpcore.errors import ParameterError, WireFormatError
from dpcore.local.schema import Attribute, Categorical, Numeric

__all__ = ["FORMAT", "KEY", "arguments", "attributes", "columns", "facts", "load"]

FORMAT = 1
KEY = b"dpcore"  # of the metadata of a result

_SIMPLE = ("epsilon", "mechanism", "k", "on_null")
_KNOWN = {*_SIMPLE, "columns", "options"}


def load(path: Any) -> dict[str, Any]:
    """The mapping in a file of TOML, or of JSON if its name ends in that."""
    where = Path(path)
    try:
        text = where.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise ParameterError("The schema file cannot be read.") from None
    if where.suffix == ".json":
        try:
            found = json.loads(text)
        except ValueError:
            raise ParameterError("The schema file is not valid JSON.") from None
        # Beside a result without room for metadata, the plan is part of more facts.
        found = found.get("plan", found) if isinstance(found, dict) else found
    else:
        found = _toml(text)
    if not isinstance(found, dict):
        raise ParameterError("The schema file must hold a table.")
    return found


def _toml(text: str) -> Any:
    if sys.version_info >= (3, 11):
        import tomllib as toml
    else:
        try:
            import tomli as toml
        except ImportError:
            raise ParameterError(
                "A schema file of TOML needs the package tomli before Python 3.11 (it is part of "
                "dpcore[tables]); a file of JSON needs nothing."
            ) from None
    try:
        return toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise ParameterError(f"The schema file is not valid TOML: {error}.") from None


def arguments(given: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """What `TablePlan` takes, from a mapping and changes to it that are not None."""
    for name in given:
        if name not in _KNOWN:
            raise ParameterError(f"The schema has an unknown key '{name}'.")
    if not isinstance(given.get("columns"), Mapping):
        raise ParameterError("The schema must have a table 'columns'.")
    options = given.get("options", {})
    if not isinstance(options, Mapping):
        raise ParameterError("The schema must have a table as 'options', if any.")
    for name in ("schema", *_SIMPLE):
        # It would win over what the caller says.
        if name in options:
            raise ParameterError(f"The schema must not have '{name}' among its options.")
    simple = {name: given[name] for name in _SIMPLE if name in given}
    simple.update({name: value for name, value in changes.items() if value is not None})
    if "epsilon" not in simple:
        raise ParameterError(
            "The 'epsilon' parameter must be given, in the schema or with --epsilon."
        )
    return {"schema": given["columns"], **simple, **options}


def attributes(schema: Mapping[str, Any]) -> list[Attribute]:
    """Attributes from a mapping of names to what is public about them."""
    inner = schema.get("columns")
    if isinstance(inner, Mapping) and len(schema) == 1 and not {"lower", "upper"} & set(inner):
        schema = inner
    return [_attribute(name, facts) for name, facts in schema.items()]


def _attribute(name: str, facts: Any) -> Attribute:
    keys = set(facts) if isinstance(facts, Mapping) else set()
    try:
        if keys == {"lower", "upper"}:
            return Numeric(name, facts["lower"], facts["upper"])
        if keys == {"categories"}:
            return Categorical(name, facts["categories"])
    except ParameterError as error:
        raise ParameterError(f"In the schema of the column '{name}': {error}") from None
    except TypeError:
        pass
    raise ParameterError(
        f"The column '{name}' must have 'lower' and 'upper', or 'categories', and nothing else."
    )


def columns(schema: Sequence[Attribute]) -> dict[str, Any]:
    """The mapping that `attributes` reads."""
    return {
        a.name: (
            {"lower": a.lower, "upper": a.upper}
            if isinstance(a, Numeric)
            else {"categories": a.categories if isinstance(a.categories, int) else list(a.labels)}
        )
        for a in schema
    }


def facts(data: Any) -> dict[str, Any] | None:
    """What the metadata of a result, its Arrow schema or a JSON text say; None if nothing."""
    if isinstance(data, dict):
        return data
    if isinstance(data, str):
        text: Any = data
    else:
        schema = getattr(data, "schema", data)
        text = (getattr(schema, "metadata", None) or {}).get(KEY)
        if text is None:
            return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    kinds = {"format": int, "digest": str, "plan": dict, "values": bool}
    if not isinstance(found, dict) or any(
        not isinstance(found.get(name), kind) for name, kind in kinds.items()
    ):
        raise WireFormatError("The metadata of the table are damaged.")
    if found["format"] != FORMAT:
        raise WireFormatError("The table is of another format than this dpcore reads.")
    return found
