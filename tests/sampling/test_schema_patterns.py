r"""Patterns of schemas: as ECMAScript reads them, or refused by name."""

import json
import re
import shutil
import unicodedata
from itertools import product
from random import Random

import pytest
from fuzz.campaign import Campaign
from fuzz.patterns import patterns
from fuzz.schemas import matching, takes

from localspec.errors import InvalidValueError
from localspec.sampling.json_schema import compile_schema


def compiled(pattern: str) -> str:
    return compile_schema(json.dumps({"type": "string", "pattern": f"^{pattern}$"}))


# A pattern, the texts that it matches, and some that it does not.
READ = [
    (r".", ["a", "\x85", "😀"], ["\n", "\r", "\u2028", "\u2029", ""]),
    (r"(?s:.)b", ["ab", "\rb"], ["a"]),
    (r"[.]", ["."], ["a"]),
    (r"[a&&b]", ["a", "&", "b"], ["c"]),
    (r"[a~~b]", ["a", "~", "b"], ["c"]),
    (r"[:alpha:]", [":", "a", "p"], ["b", "A"]),
    (r"[[:alpha:]]", ["[]", ":]", "a]"], ["a", "z"]),
    (r"[a[^b]", ["a", "[", "^", "b"], ["c"]),
    (r"[\w-]", ["a", "-"], ["é"]),
    (r"\[a\]", ["[a]"], ["a"]),
    (r"a{1,2}?b", ["ab", "aab"], ["b"]),
    (r"(?i:k)", ["k", "K", "\u212a"], ["l"]),
    (r"(?i:a(?-i:b))", ["ab", "Ab"], ["aB"]),
    (r"(?i)a(?:b.)+", ["aB-b+"], ["ab"]),
    (r"\p{General_Category=Lu}\p{scx=Greek}", ["A\u03b1"], ["a\u03b1", "Aa"]),
    (r"\p{Script=Old_Italic}", ["\U00010300"], ["a"]),
    (r"[*+?.]", ["*", "+", "?", "."], ["a"]),
    (r"\\p", ["\\p"], ["p"]),
    (r"\p{Lu}[^\p{L}\d]", ["A_", "Ä "], ["a_", "A1", "AB"]),
    (r"[\p{Script=Greek}\P{ASCII}]", ["\u03b1", "é"], ["a"]),
    (r"\p{Sc}\p{Currency_Symbol}\p{gc=Sc}", ["€$£"], ["abc"]),
    (r"\p{Cc}", ["\x01", "\n"], ["a", '"', "\\"]),
    (r'[^"\\]', ["a", "\x01"], ['"', "\\"]),
    (r'[^"-]', ["a"], ['"', "-"]),
    (r"[\x00-\x1f]|a", ["\n", "\x1f"], ['"', "\\"]),
    (r"\P{Punctuation}", ["a", "\x1f"], ['"', "\\"]),
    (r"\p{Emoji_Presentation}", ["😀"], ["1"]),
]


@pytest.mark.parametrize("pattern, good, bad", READ, ids=[each[0] for each in READ])
def test_a_pattern_is_that_of_ecmascript(pattern: str, good: list[str], bad: list[str]) -> None:
    grammar = compiled(pattern)
    assert [text for text in good if not takes(grammar, text)] == []
    assert [text for text in bad if takes(grammar, text)] == []


REFUSED = {
    r"\pL": r"has \p, which is no class of ECMAScript",
    r"a\p": r"has \p, which is no class of ECMAScript",
    r"\p{letter}": r"has \p{letter}, which is no class of ECMAScript",
    r"[^\P{Greek}]": r"has \P{Greek}, which is no class of ECMAScript",
    r"\p{sc!=Greek}": r"has \p{sc!=Greek}, which is no class of ECMAScript",
    r"\p{Script=greek}": r"has \p{Script=greek}, which is no class of ECMAScript",
    r"\p{Age=6.0}": r"has \p{Age=6.0}, which is no class of ECMAScript",
    r"\p{}": r"has \p{}, which is no class of ECMAScript",
    r"\p{Script=Klingon}": r"\p{Script=Klingon}",
    r"\p{Surrogate}": r"\p{Surrogate}",
    r"(?x)a b": r"has the flags (?x)",
    r"(?U)a*": r"has the flags (?U)",
    r"a*+": r"has *+, which repeats a repetition",
    r"a{2}{3}": r"has {2}{3}, which repeats a repetition",
    r"a*??": r"has *??, which repeats a repetition",
    r"[]a]": r"has the empty class []",
    r"[^]": r"has the empty class [^]",
    r"[+--]": r"has -- in a class",
    r"\ud83d": r"\ud83d",
    r"\x00|[^a]": "has a NUL",
    r"\u{0}": "has a NUL",
    "\0": "has a NUL",
    r"(?=.*[0-9])a": "cannot be read: look-around",
    r"\bfoo": "cannot be read: lookarounds not supported yet; WordUnicode",
    r"(a)\1": "cannot be read: backreferences are not supported",
    r"a(": "cannot be read: unclosed group",
}


@pytest.mark.parametrize("pattern", REFUSED)
@pytest.mark.parametrize("place", ["pattern", "patternProperties"])
def test_what_would_be_read_as_something_else_is_refused(pattern: str, place: str) -> None:
    value = pattern if place == "pattern" else {pattern: {}}
    with pytest.raises(InvalidValueError) as error:
        compile_schema(json.dumps({place: value, "type": ["string", "object"]}))
    message = str(error.value)
    assert message.startswith("schema: ") and REFUSED[pattern] in message, message
    assert len(message) < 400


def test_what_is_refused_is_told_as_sent_and_where_it_stands() -> None:
    amount = {"anyOf": [{"type": "number"}, {"pattern": r"^(?!0)[-+]?\d*$"}]}
    with pytest.raises(InvalidValueError) as error:
        compile_schema(json.dumps({"properties": {"total": amount}}))
    assert str(error.value).startswith(
        r"schema: the pattern '^(?!0)[-+]?\\d*$' at #/properties/total/anyOf/1 cannot be read: "
    )


@pytest.mark.parametrize("places", [r"\d*", r"\d{0,2}0*"], ids=["any", "two"])
def test_the_look_ahead_of_a_decimal_is_written_without(places: str) -> None:
    """As pydantic writes it: of all short texts, those are taken that Python's `re` matches."""
    pattern = rf"^(?!^[-+.]*$)[+-]?0*\d*\.?{places}$"
    takes_text = matching(compile_schema(json.dumps({"type": "string", "pattern": pattern})))
    texts = ["".join(each) for size in range(6) for each in product("-.01", repeat=size)]
    assert [each for each in texts if takes_text(each)] == [
        each for each in texts if re.search(pattern, each)
    ]


CATEGORIES = (
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co L M N P S "
    "Z LC"
)


@pytest.mark.parametrize("category", CATEGORIES.split())
def test_a_category_is_that_of_unicode(category: str) -> None:
    """For letters that are older than Python's own tables, of which few have changed since."""
    random, parts = Random(1), ("Lu", "Ll", "Lt") if category == "LC" else (category,)
    known = [chr(number) for number in random.sample(range(0xA0, 0x20000), 400)]
    known += [chr(number) for number in range(1, 0x7F)]
    known = [each for each in known if unicodedata.category(each) not in ("Cn", "Cs")]
    of = [each for each in known if unicodedata.category(each).startswith(parts)]
    takes_text = matching(compiled(rf"\p{{{category}}}"))
    assert [each for each in known if takes_text(each)] == of


def test_control_characters_are_refused_where_they_cannot_be_written() -> None:
    for pattern, refused in [(r"^\p{Cc}$", True), (r"^\p{Other}$", True), (r"^\p{Sc}$", False)]:
        named = {"properties": {"a": {"pattern": pattern}}, "additionalProperties": True}
        schema = json.dumps(named)
        if refused:
            with pytest.raises(InvalidValueError, match="has a control character"):
                compile_schema(schema)
        else:
            assert takes(compile_schema(schema), {"a": "€"})


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is the judge")
def test_random_patterns_match_what_they_match_in_javascript() -> None:
    with patterns() as case:
        campaign = Campaign().run(case, range(80))
    assert not campaign.faults, campaign.report()
    assert campaign.ends["alike"] > 15 and campaign.ends["refused"] > 15, campaign.ends
