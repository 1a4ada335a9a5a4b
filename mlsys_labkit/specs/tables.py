"""Tables of numbers with their sources, for the course's figures and worked cells.

    gpus = tables.load("course/data/gpus.toml")
    gpus["H100 SXM5"].bandwidth.value        # 3.35e12, in gpus.columns["bandwidth"]: "B/s"
    gpus.column("bandwidth")                 # {"H100 SXM5": 3.35e12, ...}, rows without the number left out

A file has ``title``, ``columns`` (name -> unit; "text" for words, "1" for pure numbers), ``sources`` (key -> title,
url, date, and ``secondary`` if it is no primary source) and ``rows``, each with a ``name`` and, for every number, a
value, a source and perhaps a condition.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mlsys_labkit.errors import LabkitError


class TableError(LabkitError):
    """The error for a data file that lacks something a table needs."""


@dataclass(frozen=True)
class Citation:
    """The source of a number: title, address, and the day on which it was read there.

    ``secondary`` is empty for a primary source (vendor, paper, standard, measurement). Otherwise it says which primary
    source was looked for and why it does not do.
    """

    title: str
    url: str
    date: str
    secondary: str = ""


@dataclass(frozen=True)
class Value:
    """One number (or word) in its column's unit, with its source and the condition under which it holds."""

    value: float | str
    source: Citation
    condition: str = ""


@dataclass(frozen=True)
class Row:
    """A named row; its values are attributes, and ``None`` where nothing is known."""

    name: str
    values: Mapping[str, Value]
    columns: frozenset[str]

    def __getattr__(self, column: str) -> Value | None:
        if column.startswith("_") or column not in self.columns:
            raise AttributeError(f"{self.name} has no column {column}; there are {', '.join(sorted(self.columns))}")
        return self.values.get(column)


@dataclass(frozen=True)
class Table:
    """Rows in the file's order, and the unit of each column."""

    title: str
    columns: Mapping[str, str]
    rows: tuple[Row, ...]

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise TableError(f"{self.title}: no row {name!r}; there are {', '.join(row.name for row in self.rows)}")

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def column(self, name: str) -> dict[str, float | str]:
        """Return row name -> value of a column, where the row has one. Raises TableError for an unknown column."""
        if name not in self.columns:
            raise TableError(f"{self.title}: no column {name!r}; there are {', '.join(self.columns)}")
        return {row.name: row.values[name].value for row in self.rows if name in row.values}


def load(path: str | Path) -> Table:
    """Read a table. Raises TableError, with file and row, for anything that is missing, unknown or not a number.

    Example:
        >>> import pathlib, tempfile
        >>> text = '''title = "Links"
        ... columns = { rate = "B/s" }
        ... sources = { spec = { title = "PCI Express 5.0", url = "https://pcisig.com", date = "2026-11-21" } }
        ... rows = [{ name = "PCIe 5 x16", rate = { value = 63e9, source = "spec", condition = "one direction" } }]'''
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "links.toml")
        ...     _ = file.write_text(text)
        ...     table = load(file)
        >>> table["PCIe 5 x16"].rate.value, table.columns["rate"], table["PCIe 5 x16"].rate.source.title
        (63000000000.0, 'B/s', 'PCI Express 5.0')

    Reference: TOML 1.0.0.
    """
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise TableError(f"{path} is no table: {error}") from None
    missing = [key for key in ("title", "columns", "sources", "rows") if key not in data]
    if missing or set(data) - {"title", "columns", "sources", "rows"}:
        raise TableError(
            f"{path}: a table has title, columns, sources and rows, and nothing else; got {', '.join(data)}"
        )
    kinds = {"columns": dict, "sources": dict, "rows": list}
    if wrong := [key for key, kind in kinds.items() if not isinstance(data[key], kind)]:
        raise TableError(f"{path}: expected [columns], [sources] and [[rows]], got {wrong[0]} = {data[wrong[0]]!r}")
    sources = {key: _source(path, key, fields) for key, fields in data["sources"].items()}
    rows = tuple(_row(path, each, data["columns"], sources) for each in data["rows"])
    names = [row.name for row in rows]
    if twice := {name for name in names if names.count(name) > 1}:
        raise TableError(f"{path}: two rows are called {', '.join(sorted(twice))}; give each a name of its own")
    return Table(data["title"], MappingProxyType(dict(data["columns"])), rows)


def of_devices(dtype: str = "float16", names: Sequence[str] = ()) -> Table:
    """Return the kit's datasheets as a table: year, dense ``peak`` of ``dtype``, bandwidth, memory and power.

    ``names`` are keys of ``mlsys_labkit.specs`` in the order wanted, by default all; a device without such a peak has
    none in its row.

    Example:
        >>> table = of_devices("bfloat16", ["a100-sxm-80gb", "h100-sxm"])
        >>> round(table["NVIDIA H100 SXM5 80 GB"].peak.value / 1e12)
        989

    Reference: ``mlsys_labkit/specs/hardware.toml`` names the source of each figure.
    """
    from mlsys_labkit import specs

    def row(device: specs.DeviceSpec) -> Row:
        facts = {"peak": device.peaks.get(dtype), "bandwidth": device.bandwidths.get("dram")}
        facts |= {"memory": device.facts.get("memory"), "power": device.facts.get("tdp")}
        year = Value(float(device.year), Citation(device.document, device.document_url, ""), "announced")
        values = {
            name: Value(float(fact.value), Citation(fact.source, fact.url, fact.date, fact.secondary), fact.condition)
            for name, fact in facts.items()
            if fact is not None
        }
        return Row(device.name, MappingProxyType({"year": year, **values}), frozenset(columns))

    columns = {"year": "year", "peak": "FLOP/s", "bandwidth": "B/s", "memory": "B", "power": "W"}
    rows = tuple(row(specs.get(key)) for key in names or specs.keys())
    return Table(f"Datasheets, dense {dtype}", MappingProxyType(columns), rows)


def _source(path: Path, key: str, fields: Any) -> Citation:
    try:
        return Citation(**{name: str(value) for name, value in fields.items()})
    except (TypeError, AttributeError):
        raise TableError(f"{path}, source {key}: expected title, url and date, got {fields}") from None


def _row(path: Path, fields: Any, columns: Mapping[str, str], sources: Mapping[str, Citation]) -> Row:
    name = fields.get("name") if isinstance(fields, dict) else None
    if not isinstance(name, str) or not name:
        raise TableError(f"{path}: a row has no name: {fields}")
    values = {}
    for column, given in fields.items():
        if column == "name":
            continue
        place = f"{path}, {name}, {column}"
        if column not in columns:
            raise TableError(f"{place}: no such column; there are {', '.join(columns)}")
        if not isinstance(given, dict) or not {"value", "source"} <= set(given) <= {"value", "source", "condition"}:
            raise TableError(f"{place}: expected value, source and perhaps condition, got {given}")
        if given["source"] not in sources:
            raise TableError(f"{place}: no source {given['source']!r}; there are {', '.join(sources)}")
        value, is_text = given["value"], columns[column] == "text"
        if is_text != isinstance(value, str):
            raise TableError(f"{place}: expected {'words' if is_text else 'a number'}, got {value!r}")
        if not is_text and (isinstance(value, bool) or not math.isfinite(value)):
            raise TableError(f"{place}: expected a finite number, got {value!r}")
        kept = value if is_text else float(value)
        values[column] = Value(kept, sources[given["source"]], str(given.get("condition", "")))
    return Row(name, MappingProxyType(values), frozenset(columns))
