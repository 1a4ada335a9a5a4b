"""Objects of a class under Gluon's ``@aggregate``, as a kernel makes them."""

from __future__ import annotations

from functools import partial
from typing import Any

from mlsys_labkit.triton_trace.interpret.run import Refused


class Aggregate:
    """One object: its fields are its attributes."""

    _kind: AggregateClass

    def __init__(self, kind: AggregateClass) -> None:
        self.__dict__["_kind"] = kind

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._kind.fields:
            raise Refused(f"{self._kind.name} has no field {name}")
        self.__dict__[name] = value

    def attribute(self, name: str) -> Any:
        """Return a field or a method, as a kernel writes it after a point."""
        if name in self._kind.fields:
            return self.__dict__[name]
        return partial(self._kind.method(name), self)

    @property
    def kind(self) -> AggregateClass:
        return self._kind

    @property
    def values(self) -> tuple[Any, ...]:
        return tuple(self.__dict__[name] for name in self._kind.fields)


class AggregateClass:
    """The class: a call makes an object, and a method is reached through its name.

    Args:
        spec: name, fields and methods, as names.py describes them. functions: by their keys.
    """

    def __init__(self, spec: dict[str, Any], functions: dict[str, Any]) -> None:
        self.name: str = spec["name"]
        self.fields: list[str] = spec["fields"]
        self._methods: dict[str, str] = spec["methods"]
        self._functions = functions

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AggregateClass) and self._methods == other._methods and self.name == other.name

    __hash__ = object.__hash__

    def __call__(self, *values: Any, **named: Any) -> Aggregate:
        made = Aggregate(self)
        if "__init__" in self._methods:
            self.method("__init__")(made, *values, **named)
        else:
            for name, value in {**dict(zip(self.fields, values, strict=False)), **named}.items():
                setattr(made, name, value)
        if missing := [name for name in self.fields if name not in made.__dict__]:
            raise Refused(f"the constructor of {self.name} did not set {', '.join(missing)}")
        return made

    def method(self, name: str) -> Any:
        if name not in self._methods:
            raise Refused(f"{self.name} has no field and no method {name}")
        return self._functions[self._methods[name]]

    attribute = method
