"""Similar names: which of the names there are a mistyped or abbreviated one may mean."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(typed: str, known: Iterable[str], most: int = 3) -> str:
    """Return "did you mean A or B?", or an empty text if no name is similar. most: names in it."""
    found = similar_names(typed, known)[:most]
    return f"did you mean {' or '.join(found)}?" if found else ""


def similar_names(typed: str, known: Iterable[str]) -> list[str]:
    """Return the names that begin with `typed`, short ones first; else up to three like it.

    A name that differs in nothing that counts is the only one: case, leading hyphens, and
    underscores in place of hyphens do not count. An option with a further word at its end
    (--ctx-size) means the option without it.
    """
    plain = {name: _plain(name) for name in known}
    word = _plain(typed)
    begun = sorted((name for name in plain if word and plain[name].startswith(word)), key=len)
    if begun:
        return begun[:1] if plain[begun[0]] == word else begun
    if parents := [name for name, each in plain.items() if word.startswith(f"{each}-")]:
        return parents
    close = get_close_matches(word, plain.values())
    return [name for each in close for name in plain if plain[name] == each]


def _plain(name: str) -> str:
    return name.lower().replace("_", "-").lstrip("-/")
