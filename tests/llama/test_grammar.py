"""Grammar on the bundled vocabulary: llama.cpp's own masks, harmless misuse, and the real loop."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from fakes.grammars import is_utf8, reference, text_of, walk
from fakes.tiny import FAMILIES, write_tiny
from fakes.toy import Scripted, fixed

from localspec.drafters.draft_model import DraftModel
from localspec.drafters.ngram import Ngram
from localspec.drafters.prompt_lookup import PromptLookup
from localspec.errors import InvalidValueError, LocalspecError
from localspec.llama import grammar
from localspec.llama.grammar import Grammar
from localspec.llama.model import Model
from localspec.llama.sequence import KVSequence
from localspec.sampling.gbnf import compile_gbnf
from localspec.sampling.json_schema import compile_schema
from localspec.sampling.noise import Noise
from localspec.sampling.params import SamplingParams
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import Draft
from localspec.speculation.drafter import Drafter, Limit
from localspec.speculation.passes import Passes
from localspec.speculation.rules import RULES
from localspec.stats import Stats

GRAMMARS = {
    "words": 'root ::= ("yes" | "no" | "perhaps") (" " ("yes" | "no")){0,6} "."',
    "sums": r"""
        root ::= sum ("\n" sum){2,4}
        sum  ::= term " = " term   # both sides
        term ::= [0-9]{1,3} | "(" term [-+*/] term ")"
    """,
    "accents": 'root ::= [à-ÿ€日本]{3,12} "ü"',
    "anything": "root ::= .*",
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "person": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 12},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "tags": {"type": "array", "items": {"enum": ["a", 'b"\\', "é"]}, "maxItems": 3},
            "day": {"type": "string", "format": "date"},
        },
        "required": ["name", "age", "day"],
        "additionalProperties": False,
    },
    "list": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "value": {"type": "number", "minimum": -5, "maximum": 5},
                    "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
                },
                "required": ["value", "next"],
                "additionalProperties": False,
            }
        },
    },
}
ALL = {
    **{name: compile_gbnf(text) for name, text in GRAMMARS.items()},
    **{f"schema {name}": compile_schema(json.dumps(each)) for name, each in SCHEMAS.items()},
}
PLAIN = SamplingParams(temperature=0.8)
PROMPT = 'def load(path):\n    """Read {"name": "x", "age": 1} from a file."""\n    data = '


@pytest.mark.parametrize("name", GRAMMARS)
def test_masks_are_those_of_llama_cpp(name: str, target_model: Model) -> None:
    """Where one text is forced they hold one spelling of it, the tokenizer's; else they are equal.

    llama.cpp also takes bytes that make no UTF-8, and never NUL; those are left out.
    """
    pieces = [target_model.piece(token) for token in range(target_model.n_vocab)]
    shown = np.array(
        [
            piece not in (b"", b"\0") or target_model.ends_generation(t)
            for t, piece in enumerate(pieces)
        ]
    )
    start = Grammar.begin(ALL[name], target_model)
    equal = 0
    for seed in range(4):
        with reference(GRAMMARS[name], target_model) as (allowed, accept):
            state, text = start, b""
            for token in walk(start, target_model, seed, steps=40):
                expected, found = allowed() & shown, state.allowed() & shown
                assert not (found & ~expected).any()
                missing = np.flatnonzero(expected & ~found)
                if not any(is_utf8(text + pieces[int(token)]) for token in missing):
                    equal += 1
                else:
                    assert found.sum() == 1
                accept(token)
                state, text = state.then(token), text + target_model.piece(token)
    assert equal >= 10


FORCED = [" ", "a b", "  \\n  ", "é €", " nr", "\\t"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_forced_text_is_written_in_any_vocabulary(family: str, tmp_path: Path) -> None:
    """Some of these have no token for the character that stands for a space."""
    model = Model(write_tiny(tmp_path / "tiny.gguf", family))
    for forced in FORCED:
        for rule in (f'root ::= "{forced}"', f'root ::= "{forced}" | "{forced}!"'):
            start = Grammar.begin(compile_gbnf(rule), model)
            text = text_of(walk(start, model, seed=0, steps=20), model)
            assert text.rstrip("!") == forced.replace("\\n", "\n").replace("\\t", "\t")
    model.close()


def test_then_never_changes_its_receiver(target_model: Model) -> None:
    """States of many texts, asked in any order, answer as if each were the only one."""
    start = Grammar.begin(ALL["sums"], target_model)
    states, masks = [start], [start.allowed().copy()]
    rng = np.random.default_rng(1)
    for _ in range(200):
        chosen = int(rng.integers(len(states)))
        options = [
            int(t)
            for t in np.flatnonzero(masks[chosen])
            if not target_model.ends_generation(int(t))
        ]
        if options:
            states.append(states[chosen].then(int(rng.choice(options))))
            masks.append(states[-1].allowed().copy())
    for i in rng.permutation(len(states)):
        again = Grammar(states[i]._matcher, states[i]._position)
        assert np.array_equal(again.allowed(), masks[i])


def test_all_who_ask_about_a_position_share_its_mask(target_model: Model) -> None:
    """A drafter, the target and the text do, one after the other; old masks are dropped."""
    drafted = verified = Grammar.begin(ALL["anything"], target_model)
    token = target_model.tokenize("a", add_special=False)[-1]
    for _ in range(100):
        drafted, verified = drafted.then(token), verified.then(token)
        assert verified.allowed() is drafted.allowed()
    assert drafted.allowed()[token]
    assert len(drafted._matcher._masks) <= grammar._MOST_KEPT


def test_a_text_ends_where_the_grammar_may(target_model: Model) -> None:
    state = Grammar.begin(compile_gbnf('root ::= "no"'), target_model)
    ends = list(target_model.end_tokens)
    assert not state.allowed()[ends].any()
    for token in target_model.tokenize("no", add_special=False):
        state = state.then(token)
    assert np.flatnonzero(state.allowed()).tolist() == ends
    assert np.array_equal(state.then(ends[0]).allowed(), state.allowed())


def test_a_token_that_is_not_allowed_leads_nowhere(target_model: Model) -> None:
    start = Grammar.begin(compile_gbnf('root ::= "no"'), target_model)
    wrong = target_model.tokenize("yes", add_special=False)[0]
    for token in (wrong, target_model.eos, -1, target_model.n_vocab, 10**12):
        dead = start.then(token)
        assert not dead.allowed().any()
        assert not dead.then(wrong).then(token).allowed().any()
    assert start.allowed().any()
    sampler = Sampler(PLAIN, Noise(1), constraint=start)
    with pytest.raises(LocalspecError, match="forbidden"):
        logits = np.zeros(target_model.n_vocab, dtype=np.float32)
        sampler.distribution(logits, sampler.prefix([1]).then(wrong))


def test_control_tokens_do_not_pass_as_the_text_they_are_named_by(target_model: Model) -> None:
    state = Grammar.begin(compile_gbnf('root ::= "<|im_start|>" | .'), target_model)
    start = target_model.tokenize("<|im_start|>", add_special=False)
    assert len(start) == 1 and not target_model.piece(start[0])
    assert not state.allowed()[start[0]]


def test_a_grammar_of_a_closed_model_is_an_error_of_ours(target_path: Any) -> None:
    model = Model(target_path)
    state = Grammar.begin(compile_gbnf('root ::= "abc" | "b"'), model)
    token = model.tokenize("a", add_special=False)[0]
    model.close()
    with pytest.raises(LocalspecError, match="closed"):
        state.then(token).allowed()


class Overcome:
    """llguidance's matcher, which fails for good behind a token, as if that made it ambiguous."""

    def __init__(self, matcher: Any, token: int) -> None:
        self._matcher, self._token, self._failed = matcher, token, False

    def consume_tokens(self, tokens: list[int]) -> None:
        self._failed |= self._token in tokens
        self._matcher.consume_tokens(tokens)

    def is_error(self) -> bool:
        return self._failed or self._matcher.is_error()

    def get_error(self) -> str:
        return "too many items"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._matcher, name)


def test_a_token_behind_which_a_grammar_cannot_be_followed_is_no_hindrance_elsewhere(
    target_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A draft may have led there; the text has not."""
    [a], [b] = (target_model.tokenize(letter, add_special=False) for letter in "ab")
    begun = grammar._begun
    monkeypatch.setattr(grammar, "_begun", lambda *of: Overcome(begun(*of), a))
    start = Grammar.begin(compile_gbnf("root ::= [ab]*"), target_model)
    assert start.then(b).allowed()[a]
    with pytest.raises(InvalidValueError, match="cannot be followed: too many items"):
        start.then(b).then(a).allowed()
    assert start.then(b).then(b).allowed()[b]


# The loop.


class Free(DraftModel):
    """Drafts as if there were no grammar."""

    def passes(self, limit: Limit) -> Passes[Draft]:
        free = replace(limit.sampler, constraint=None)
        return super().passes(
            replace(limit, sampler=free, prefix=replace(limit.prefix, constraint=None))
        )


Decode = Callable[..., tuple[list[int], Stats]]


@pytest.fixture
def decode(
    make_context: Callable[..., KVSequence], target_model: Model, drafter_model: Model
) -> Decode:
    """Tokens up to the one that ends the text, at most `length`, and the account."""
    target, small = make_context(target_model), make_context(drafter_model)
    prompt = target_model.tokenize(PROMPT)

    def model(kind: type[DraftModel]) -> Drafter:
        return kind(small, name="small", n_vocab=target_model.n_vocab)

    drafters: dict[str, Callable[[], Drafter | None]] = {
        "none": lambda: None,
        "lookup": PromptLookup,
        "ngram": Ngram,
        "draft model": lambda: model(DraftModel),
        "unconstrained": lambda: model(Free),
        "wrong": lambda: Scripted(lambda text, limit: Draft([0, 2, 1, 4000][: limit.depth])),
    }

    def run(
        grammar: Grammar | None,
        drafter: str = "none",
        *,
        params: SamplingParams = PLAIN,
        seed: int = 0,
        depth: int = 4,
        rule: str = "coupled",
        length: int = 60,
    ) -> tuple[list[int], Stats]:
        text, stats, tokens = list(prompt), Stats(), list[int]()
        target.truncate(0)
        target.extend(text[:-1])
        chosen = RULES[rule]
        sampler = Sampler(params, chosen.randomness(seed), constraint=grammar)
        loop = Decoder(target, fixed(drafters[drafter](), depth), chosen, sampler, text, stats)
        for emission in loop.run(length):
            tokens.append(emission.id)
            if target_model.ends_generation(emission.id):
                break
        return tokens, stats

    return run


@pytest.mark.parametrize("temperature", [0, 0.8])
@pytest.mark.parametrize("name", ["words", "sums", "accents", "schema person", "schema list"])
def test_the_text_does_not_depend_on_the_drafter(
    name: str, temperature: float, decode: Decode, target_model: Model
) -> None:
    params = SamplingParams(temperature=temperature)
    grammar = Grammar.begin(ALL[name], target_model)
    for seed in range(2 if temperature else 1):
        plain, _ = decode(grammar, params=params, seed=seed)
        for drafter in ("lookup", "ngram", "draft model", "unconstrained", "wrong"):
            for depth in (1, 8):
                drafted, _ = decode(grammar, drafter, params=params, seed=seed, depth=depth)
                assert drafted == plain, (drafter, depth)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", ["person", "list"])
def test_the_output_satisfies_its_schema(
    name: str, rule: str, decode: Decode, target_model: Model
) -> None:
    grammar = Grammar.begin(ALL[f"schema {name}"], target_model)
    ended = 0
    for seed in range(16):
        drafter = ("draft model", "lookup", "unconstrained", "wrong")[seed % 4]
        hot = SamplingParams(temperature=0.5 + seed % 3, top_k=0, top_p=1, min_p=0)
        params = hot if seed % 2 else PLAIN
        tokens, _ = decode(grammar, drafter, params=params, seed=seed, rule=rule, length=150)
        if target_model.ends_generation(tokens[-1]):
            ended += 1
            jsonschema.validate(json.loads(text_of(tokens, target_model)), SCHEMAS[name])
    assert ended >= (9 if name == "person" else 3)


@pytest.mark.parametrize("rule", RULES)
def test_a_finite_grammar_always_ends(rule: str, decode: Decode, target_model: Model) -> None:
    grammar = Grammar.begin(ALL["words"], target_model)
    for seed in range(12):
        drafter = ("none", "draft model", "wrong", "unconstrained")[seed % 4]
        tokens, _ = decode(grammar, drafter, seed=seed, rule=rule)
        assert target_model.ends_generation(tokens[-1])
        assert text_of(tokens, target_model).endswith(".")


@pytest.mark.slow
def test_the_drafter_keeps_to_the_grammar_as_well(decode: Decode, target_model: Model) -> None:
    lines = ["acceptance of the draft model, depth 4, drafter constrained / not:"]
    for name in ("sums", "schema person", "schema list"):
        grammar = Grammar.begin(ALL[name], target_model)
        for temperature in (0, 0.8):
            rates = []
            for drafter in ("draft model", "unconstrained"):
                drafted = accepted = 0
                for seed in range(3):
                    params = SamplingParams(temperature=temperature)
                    _, stats = decode(grammar, drafter, params=params, seed=seed)
                    drafted, accepted = drafted + stats.drafted, accepted + stats.accepted
                rates.append(accepted / drafted)
            lines.append(f"  {name:14} at {temperature}: {rates[0]:.3f} / {rates[1]:.3f}")
            assert rates[0] > rates[1] + 0.1
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
