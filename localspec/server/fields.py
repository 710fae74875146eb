"""Fields: reads the members of a JSON object that a client sent, each of its type."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from localspec.server.errors import ApiError
from localspec.utils.format import as_json

# A list of more objects is no conversation; reading it would hold up everybody.
_MOST_OBJECTS = 16_384
_Value = TypeVar("_Value")
_Number = TypeVar("_Number", int, float)
_NAMES = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "an object",
}


class Fields:
    """The members of an object. path: where it stands in the body, for errors.

    A member that is missing and one that is null are the same. Each method raises ApiError (400),
    which names the member and what it may be.
    """

    def __init__(self, values: object, path: str = "") -> None:
        if not isinstance(values, Mapping):
            where = path or "the body"
            raise ApiError(400, f"{where} must be a JSON object", param=path or None)
        self.values: Mapping[str, Any] = values
        self.path = path

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def text(self, name: str) -> str | None:
        """A string."""
        return self._typed(name, str)

    def flag(self, name: str) -> bool | None:
        """True or false."""
        return self._typed(name, bool)

    def whole(self, name: str, least: int | None = None, most: int | None = None) -> int | None:
        """A whole number; clients may write it as 4.0."""
        value = self.values.get(name)
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**63:
            value = int(value)
        number = None if value is None else self._checked(name, value, int)
        return self._between(name, number, least, most)

    def number(
        self, name: str, least: float | None = None, most: float | None = None
    ) -> float | None:
        """A finite number."""
        value = self.values.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53:
            value = float(value)
        number = None if value is None else self._checked(name, value, float)
        if number is not None and not abs(number) < float("inf"):
            raise self.wrong(name, "a finite number")
        return self._between(name, number, least, most)

    def items(self, name: str) -> list[Any] | None:
        """A list."""
        return self._typed(name, list)

    def member(self, name: str) -> "Fields | None":
        """An object."""
        value = self.values.get(name)
        return None if value is None else Fields(value, self.place(name))

    def objects(self, name: str) -> Iterator["Fields"]:
        """The objects of a list; none if it is missing."""
        values = self.items(name) or []
        if len(values) > _MOST_OBJECTS:
            place = self.place(name)
            raise ApiError(
                400, f"{place} has {len(values)} entries; send {_MOST_OBJECTS} at most", param=place
            )
        for at, value in enumerate(values):
            yield Fields(value, f"{self.place(name)}[{at}]")

    def texts(self, name: str) -> list[str]:
        """A string, or a list of strings."""
        value = self.values.get(name)
        found = [value] if isinstance(value, str) else value
        if found is None:
            return []
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise self.wrong(name, "a string or a list of strings")
        return cast(list[str], found)

    def one_of(self, name: str, choices: Sequence[str]) -> str | None:
        """One of these strings."""
        value = self.text(name)
        if value is not None and value not in choices:
            raise self.wrong(name, f"one of {', '.join(choices)}")
        return value

    def needed(self, name: str) -> Any:
        """A member that must be there, of any type."""
        value = self.values.get(name)
        if value is None:
            raise ApiError(400, f"{self.place(name)} is missing", param=self.place(name))
        return value

    def wrong(self, name: str, wanted: str) -> ApiError:
        """The error of a member that is something else. wanted: what it must be."""
        place, value = self.place(name), as_json(self.values.get(name))
        return ApiError(400, f"{place} is {value:.60}; it must be {wanted}", param=place)

    def refuse(self, members: Mapping[str, tuple[Any, ...]]) -> None:
        """Refuse members that would change the answer and that this server has not.

        members: their names, and what each may be because it changes nothing.
        """
        for name, harmless in members.items():
            if name in self and self.values[name] not in harmless:
                raise self.wrong(name, "left out: this server has no such option")

    def place(self, name: str) -> str:
        """Where a member stands in the body."""
        return f"{self.path}.{name}" if self.path else name

    def _typed(self, name: str, type_: type[_Value]) -> _Value | None:
        value = self.values.get(name)
        return None if value is None else self._checked(name, value, type_)

    def _checked(self, name: str, value: Any, type_: type[_Value]) -> _Value:
        if not isinstance(value, type_) or (type_ is not bool and isinstance(value, bool)):
            raise self.wrong(name, _NAMES[type_])
        return value

    def _between(
        self, name: str, value: _Number | None, least: float | None, most: float | None
    ) -> _Number | None:
        if value is None:
            return None
        if least is not None and value < least:
            raise self.wrong(name, f"at least {least}")
        if most is not None and value > most:
            raise self.wrong(name, f"at most {most}")
        return value
