"""What of GBNF is understood, and where what is wrong is said to be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_cpp import llama_grammar
from llguidance import LLMatcher, LLTokenizer

from localspec.errors import InvalidValueError
from localspec.sampling.gbnf import compile_gbnf

BYTES = LLTokenizer("byte")


def takes(grammar: str, text: str) -> bool:
    matcher = LLMatcher(BYTES, grammar, log_level=0)
    return matcher.consume_tokens(list(text.encode())) and matcher.is_accepting()


TAKES = [
    ('root ::= "a" | "b" # or\r\n', ["a", "b"], ["", "c", "ab"]),
    ("root ::= ( # inside brackets a line may end\n [0-9]\n){2}", ["12"], ["1", "123"]),
    ('root ::= "a"{2,}', ["aa", "aaaa"], ["a"]),
    ('root ::= "ab"{1,2}', ["ab", "abab"], ["abb", "ababab"]),
    ("root ::= [^a-c\\]]", ["d", "[", "日", "\n"], ["b", "]", ""]),
    ("root ::= [a-]", ["a", "-"], ["b"]),
    ("root ::= .", ["a", "\n", "é"], ["", "ab"]),
    ('root ::= "\\x41\\u00e9\\U0001F600\\"\\\\\\t"', ['Aé😀"\\\t'], ["A"]),
    ("root ::= [\\u00e9-\\u00ff\\x2d]{2}", ["éü", "--"], ["ea"]),
    ('root ::= "\\u0022\\x5c\\r\\x7f\\u2028"', ['"\\\r\x7f\u2028'], ['"']),
    ("root ::= [\\u005d\\u005c\\u0022\\u005e]", ["]", "\\", '"', "^"], ["a"]),
    ('# a comment, with "quotes" \\\nroot ::= "a" # %llguidance {}\n# the end', ["a"], [""]),
    ('root ::= "(" root* ")"', ["()", "(()(()))"], ["(", ""]),
    ('root ::= "(" root ")" |', ["", "()", "((()))"], ["(", "())"]),
    ('root ::= x-1* "."\nx-1 ::=\n "a" |\n "b"', [".", "abba."], ["ab"]),
    ('root ::= root "a" | "b"', ["b", "baa"], ["", "a"]),
    # Names that are alike, or mean something, where the grammar is compiled.
    ('root ::= aB a-b start\naB ::= "x"\na-b ::= "y"\nstart ::= "z"', ["xyz"], ["xxx"]),
]


@pytest.mark.parametrize("text, good, bad", TAKES)
def test_what_a_grammar_means(text: str, good: list[str], bad: list[str]) -> None:
    grammar = compile_gbnf(text)
    for sentence in good:
        assert takes(grammar, sentence), sentence
    for sentence in bad:
        assert not takes(grammar, sentence), sentence


WRONG = [
    ('root ::= "a" ("b"', "line 1, column 18: expected \"?'\\)"),
    ('x ::= "a"\n\nroot ::= x  yy', 'line 3, column 13: there is no rule "yy"'),
    ('root ::= "a\\', "line 1, column 12: incomplete escape"),
    ('root ::= "a" )', "line 1, column 14: expected name"),
    ('root ::= "\\u00e9\\U000000e9" )', "line 1, column 29: expected name"),
    ('root ::= yyy yy\nyyy ::= "a"', 'line 1, column 14: there is no rule "yy"'),
    ('root ::= "a" root+', 'line 1, column 1: no text ever satisfies the rule "root"'),
    ('root ::= x\nx ::= "a"{2,1} x | "b"', 'line 2, column 1: in the rule "x": range end must be'),
    ('# a\n# b\nroot ::= "a" | "b" |\n x\n# c\nx ::= [z-a]', 'line 6, column 1: in the rule "x"'),
    ('root ::= yx\nyx ::= x\nx ::= "a"{2,1}', 'line 3, column 1: in the rule "x"'),
    ('x\nroot ::= "a"', "line 1, column 2: expected ::="),
    ("root ::= 'a'", "line 1, column 10: expected name"),
    ("root ::= [", "line 1, column 11: unexpected end"),
    ('root ::= "\\q"', "line 1, column 12: invalid escape sequence"),
    ('root ::= "a" root', 'line 1, column 1: no text ever satisfies the rule "root"'),
    ('root ::= "a" | x\nx ::= "b" x', 'line 2, column 1: no text ever satisfies the rule "x"'),
    ('root ::= x\nx ::= "a"{2,1}', 'line 2, column 1: in the rule "x": range end must be'),
    ("root ::= x\n x ::= [z-a]", 'line 2, column 2: in the rule "x": .*invalid character class'),
]


@pytest.mark.parametrize("text, message", WRONG)
def test_what_is_wrong_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InvalidValueError, match=f"^grammar, {message}") as error:
        compile_gbnf(text)
    assert "\n" not in str(error.value) and "%llguidance" not in str(error.value)


@pytest.mark.parametrize("text", ["", 'x ::= "a"'])
def test_a_grammar_without_a_root_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError, match='no rule named "root"'):
        compile_gbnf(text)


@pytest.mark.parametrize("code", ["\\ud800", "\\udfff", "\\U00110000", "\\Uffffffff"])
def test_a_code_beyond_unicode_is_no_character(code: str) -> None:
    with pytest.raises(InvalidValueError) as error:
        compile_gbnf(f'root ::= "{code}"')
    assert str(error.value) == f"grammar: {code} is no character"


@pytest.mark.parametrize("text", [llama_grammar.JSON_GBNF, llama_grammar.C_GBNF])
def test_the_grammars_of_the_binding_compile(text: str) -> None:
    LLMatcher(BYTES, compile_gbnf(text), log_level=0).compute_bitmask()


@given(st.text(alphabet='abr ot:=|()[]{}*+?.,0123"\\\n-^#<!xu', max_size=60))
def test_any_text_compiles_or_is_refused_in_one_line(text: str) -> None:
    for candidate in (text, f"root ::= {text}"):
        try:
            compile_gbnf(candidate)
        except InvalidValueError as error:
            assert "\n" not in str(error)
