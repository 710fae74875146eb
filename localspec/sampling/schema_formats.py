"""What llguidance knows only in part: formats, as schemas of the rest, and spaces in patterns."""

import re
from typing import Any

_YEAR = "(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_FOURTH = "(0[48]|[2468][048]|[13579][26])"
_LEAP_YEAR = f"([0-9]{{2}}{_FOURTH}|{_FOURTH}00)"
_DATE = f"({_YEAR}-(0[13-9]|1[0-2])-[0-9]{{2}}|{_YEAR}-02-([01][0-9]|2[0-8])|{_LEAP_YEAR}-02-29)"
# Leap seconds are left out: whether there was one is in no pattern.
_TIME = r"[0-9]{2}:[0-9]{2}:[0-5][0-9](\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"

# A label whose third and fourth character are hyphens is Punycode, and as such may be invalid.
_X, _H = "[A-Za-z0-9]", "[A-Za-z0-9-]"
_LABEL = f"({_X}({_H}{{0,2}}{_X})?|{_X}{_H}({_X}{_H}|-{_X}){_H}*{_X})"

FORMATS: dict[str, dict[str, Any]] = {
    "date": {"pattern": f"^{_DATE}$"},
    "time": {"pattern": f"^{_TIME}$"},
    "date-time": {"pattern": f"^{_DATE}[Tt ]{_TIME}$"},
    "hostname": {"pattern": rf"^({_LABEL}\.)*{_LABEL}$", "maxLength": 253},
}

# What \s means in ECMAScript: the spaces of Unicode without U+0085, but with U+FEFF.
SPACES = r"\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_SPACE_CLASSES = {r"\s": f"[{SPACES}]", r"\S": f"[^{SPACES}]"}


def with_spaces(pattern: str) -> str:
    """A pattern whose classes of spaces are written out; they may stand within other classes."""
    return re.sub(r"\\.", lambda found: _SPACE_CLASSES.get(found[0], found[0]), pattern)
