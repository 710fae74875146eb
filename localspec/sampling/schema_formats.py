"""Formats of JSON schemas: which llguidance knows, and the rest of those it knows in part."""

from typing import Any

_YEAR = "(000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_FOURTH = "(0[48]|[2468][048]|[13579][26])"
_LEAP_YEAR = f"([0-9]{{2}}{_FOURTH}|{_FOURTH}00)"
_DATE = f"({_YEAR}-(0[13-9]|1[0-2])-[0-9]{{2}}|{_YEAR}-02-([01][0-9]|2[0-8])|{_LEAP_YEAR}-02-29)"
# Leap seconds are left out: whether there was one is in no pattern. Nothing is finer than 1 ns.
_TIME = r"[0-9]{2}:[0-9]{2}:[0-5][0-9](\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"

# A label whose third and fourth character are hyphens is Punycode, and as such may be invalid.
_X, _H = "[A-Za-z0-9]", "[A-Za-z0-9-]"
_LABEL = f"({_X}({_H}{{0,2}}{_X})?|{_X}{_H}({_X}{_H}|-{_X}){_H}*{_X})"

# Others are a remark of whoever wrote the schema, such as pydantic's `path` and `password`.
KNOWN = {
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uri",
    "uuid",
    "unknown",
}

FORMATS: dict[str, dict[str, Any]] = {
    "date": {"pattern": f"^{_DATE}$"},
    "time": {"pattern": f"^{_TIME}$"},
    "date-time": {"pattern": f"^{_DATE}[Tt ]{_TIME}$"},
    "duration": {"pattern": "^([0-9]{0,18}[^0-9])*$"},  # of 64 bits
    "email": {"maxLength": 254},  # RFC 5321
    "hostname": {"pattern": rf"^({_LABEL}\.)*{_LABEL}$", "maxLength": 253},
}
