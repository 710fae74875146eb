r"""Patterns of JSON schemas: those of ECMAScript with its flag `u`, as llguidance reads them.

llguidance has the syntax of Rust's regex crate, which gives other meanings to some of the same
letters: what can be written so that it means the same is, the rest is refused by name.
"""

import json
import re
from functools import lru_cache

from localspec.errors import InvalidValueError

# What \s means in ECMAScript: the spaces of Unicode without U+0085, but with U+FEFF.
_SPACES = r"\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_SPACE_CLASSES = {r"\s": f"[{_SPACES}]", r"\S": f"[^{_SPACES}]"}
_DOT = r"[^\n\r\u2028\u2029]"
# In classes, Rust has operators and other classes where ECMAScript has these characters.
_OPERATORS = ("[", "&", "~", ":")
# A class with all control characters would let a text have quotes and backslashes too: without NUL
# it has not all of them.
_NOT_NUL = r"&&[^\x00]]"

_TOKEN = re.compile(
    r"\\(?:x00|u0000|U0{8}|[xuU]\{0+\}|[pP]\{[^{}]*\}|.)|\[\^?|(?:[*+?]|\{\d+(?:,\d*)?\})\??"
    r"|\(\?[a-zA-Z]*(?:-[a-zA-Z]*)?[:)]|.",
    re.DOTALL,
)
_NUL = re.compile(r"\0|\\[xuU](?:0+|\{0+\})")
_QUANTIFIER = re.compile(r"(?:[*+?]|\{.+\})\??")
# Those of ECMAScript 2025, which have the same meaning wherever they are known.
_FLAGS = re.compile(r"\(\?(?:[ims]+|[ims]*-[ims]+)?:|\(\?[ims]+\)")
_DOT_IS_ALL = re.compile(r"\(\?[im]*s")

# The names of classes: https://tc39.es/ecma262/#table-nonbinary-unicode-properties and what follows
# it. Those of scripts are llguidance's to know.
_CATEGORIES = (
    "C Cased_Letter Cc Cf Close_Punctuation Cn Co Combining_Mark Connector_Punctuation Control Cs "
    "Currency_Symbol Dash_Punctuation Decimal_Number Enclosing_Mark Final_Punctuation Format "
    "Initial_Punctuation L LC Letter Letter_Number Line_Separator Ll Lm Lo Lowercase_Letter Lt Lu "
    "M Mark Math_Symbol Mc Me Mn Modifier_Letter Modifier_Symbol N Nd Nl No Nonspacing_Mark Number "
    "Open_Punctuation Other Other_Letter Other_Number Other_Punctuation Other_Symbol P "
    "Paragraph_Separator Pc Pd Pe Pf Pi Po Private_Use Ps Punctuation S Sc Separator Sk Sm So "
    "Space_Separator Spacing_Mark Surrogate Symbol Titlecase_Letter Unassigned Uppercase_Letter Z "
    "Zl Zp Zs cntrl digit punct"
)
_PROPERTIES = (
    "AHex ASCII ASCII_Hex_Digit Alpha Alphabetic Any Assigned Bidi_C Bidi_Control Bidi_M "
    "Bidi_Mirrored CI CWCF CWCM CWKCF CWL CWT CWU Case_Ignorable Cased Changes_When_Casefolded "
    "Changes_When_Casemapped Changes_When_Lowercased Changes_When_NFKC_Casefolded "
    "Changes_When_Titlecased Changes_When_Uppercased DI Dash Default_Ignorable_Code_Point Dep "
    "Deprecated Dia Diacritic EBase EComp EMod EPres Emoji Emoji_Component Emoji_Modifier "
    "Emoji_Modifier_Base Emoji_Presentation Ext ExtPict Extended_Pictographic Extender Gr_Base "
    "Gr_Ext Grapheme_Base Grapheme_Extend Hex Hex_Digit IDC IDS IDSB IDST IDS_Binary_Operator "
    "IDS_Trinary_Operator ID_Continue ID_Start Ideo Ideographic Join_C Join_Control LOE "
    "Logical_Order_Exception Lower Lowercase Math NChar Noncharacter_Code_Point Pat_Syn Pat_WS "
    "Pattern_Syntax Pattern_White_Space QMark Quotation_Mark RI Radical Regional_Indicator "
    "SD STerm Sentence_Terminal Soft_Dotted Term Terminal_Punctuation UIdeo Unified_Ideograph "
    "Upper Uppercase VS Variation_Selector White_Space XIDC XIDS XID_Continue XID_Start "
    "space"
)
_SCRIPT = re.compile(r"(?:Script|sc|Script_Extensions|scx)=[A-Z][A-Za-z]*(?:_[A-Z][a-z]+)*")
# What older versions of pydantic ask of a Decimal, with look-ahead: at least one digit.
_DECIMAL = re.compile(
    r"\^\(\?!\^\[-\+\.\]\*\$\)\[\+-\]\?0\*\\d\*\\\.\?\\d(?:\*|\{0,([1-9]\d*)\}0\*)\$"
)


def understood(pattern: str, place: str = "") -> str:
    """The pattern as llguidance is to get it. place: of the pattern in its schema.

    Raises InvalidValueError, which names the part that llguidance cannot read, or would read as
    something else.
    """
    try:
        return _understood(_without_look_ahead(pattern))
    except InvalidValueError as error:
        at = f" at #{place:.160}" if place else ""
        raise InvalidValueError(f"schema: the pattern {pattern!r:.60}{at} {error}") from error


def _without_look_ahead(pattern: str) -> str:
    if not (decimal := _DECIMAL.fullmatch(pattern)):
        return pattern
    places = decimal[1]
    rest, first = (rf"\d{{0,{places}}}0*", rf"\d{{1,{places}}}0*") if places else (r"\d*", r"\d+")
    return rf"^[+-]?(\d+(\.{rest})?|\.{first})$"


@lru_cache(maxsize=256)
def _understood(pattern: str) -> str:
    dot = "." if _DOT_IS_ALL.search(pattern) else _DOT
    written, before, in_class = list[str](), "", False
    for token in _TOKEN.findall(pattern):
        if problem := _trouble_in_class(token, before) if in_class else _trouble(token, before):
            raise InvalidValueError(f"has {problem}")
        if in_class:
            written.append(_in_class(token))
            in_class = token != "]"
        else:
            written.append(dot if token == "." else _outside(token))
            in_class = token in ("[", "[^")
        before = token
    found = "".join(written)
    if reason := _syntax_error(found):
        raise InvalidValueError(f"cannot be read: {reason}")
    return found


def _syntax_error(pattern: str) -> str | None:
    """Why Rust's regex does not read a pattern, such as for its look-around."""
    # Imported only when needed: chats read schemas that have no patterns.
    from llguidance import LLMatcher

    alone = json.dumps({"type": "string", "pattern": pattern})
    failed, messages = LLMatcher.validate_grammar_with_warnings(
        LLMatcher.grammar_from_json_schema(alone)
    )
    if not failed or messages[0].startswith("Unsatisfiable"):
        return None
    return re.split(r"error: ", messages[0].partition(" in regex /")[0])[-1][:120]


def _outside(token: str) -> str:
    if token in ("[", "[^"):
        return f"[{token}"
    if token.startswith((r"\p", r"\P")):
        return f"[{token}{_NOT_NUL}"
    return _SPACE_CLASSES.get(token, token)


def _in_class(token: str) -> str:
    if token == "]":
        return f"]{_NOT_NUL}"
    if token.startswith(_OPERATORS):
        return f"\\{token}"
    return _SPACE_CLASSES.get(token, token)


def _trouble(token: str, before: str) -> str | None:
    """What is wrong with a part of a pattern, outside of classes. before: the part before it."""
    if _QUANTIFIER.fullmatch(token) and _QUANTIFIER.fullmatch(before):
        return f"{before}{token}, which repeats a repetition"
    if token.startswith("(?") and not _FLAGS.fullmatch(token):
        return f"the flags {token}, of which only i, m and s are supported"
    if _NUL.fullmatch(token):
        return "a NUL, which no text is written with"
    return _unknown_class(token)


def _trouble_in_class(token: str, before: str) -> str | None:
    if token == "]" and before in ("[", "[^"):
        return f"the empty class {before}]"
    if token == before == "-":
        return "-- in a class; write \\- for a hyphen"
    return _unknown_class(token)


def _unknown_class(token: str) -> str | None:
    r"""What is wrong with a \\p that ECMAScript does not know, or knows by another name."""
    if not token.startswith((r"\p", r"\P")):
        return None
    name = token[3:-1]
    value = name.removeprefix("General_Category=").removeprefix("gc=")
    if value in _CATEGORIES.split() or name in _PROPERTIES.split() or _SCRIPT.fullmatch(name):
        return None
    return f"{token}, which is no class of ECMAScript; write \\p{{L}} or \\p{{Script=Greek}}"
