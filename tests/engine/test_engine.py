"""What `import localspec` gives a program: load, generate, stream, and one's own drafter."""

import copy
import json
import math
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from fakes.pycode import load as load_pycode
from fakes.tiny import write_tiny
from fakes.toy import Repeat

import localspec
from localspec import Draft, Engine, Limit, LocalspecError, Outcome, Result, Token
from localspec.control.base_costs import WIDEST
from localspec.control.explanation import Explanation
from localspec.speculation.decoder import Decoder

PROMPT = "class Reader:\n    def read(self"
OTHER = "import os\n\ndef main("
DRAFTERS = ["auto", "both", "model", "lookup", "ngram", "none"]
MODEL = "pycode-4m-q4_0"
OWN = {"plain", "corrected", "bonus"}
# The end tokens of the bundled model, forbidden: a text that only its length ends.
ENDLESS: dict[int, float] = dict.fromkeys((0, 1, 2), float("-inf"))

Load = Callable[..., Engine]


def depth_of(draft: str, depth: int = 3) -> int | None:
    """`auto` drafts as deep as pays, which may be not at all; all else here has a fixed depth."""
    return None if draft == "auto" else depth


@pytest.fixture(scope="module")
def made(drafter_path: Path) -> Load:
    """New engines, in the settings where logits are equal bit for bit at every width."""
    named = {"model": str(drafter_path), "both": ["suffix", drafter_path]}

    def new(draft: Any = "auto", **options: Any) -> Engine:
        chosen = named.get(draft, draft) if isinstance(draft, str) else draft
        return load_pycode(draft=chosen, threads=1, flash_attention=True, **options)

    return new


@pytest.fixture
def load(made: Load) -> Iterator[Load]:
    """Fresh engines, closed afterwards."""
    engines: list[Engine] = []

    def fresh(draft: Any = "auto", **options: Any) -> Engine:
        engines.append(made(draft, **options))
        return engines[-1]

    yield fresh
    for engine in engines:
        engine.close()


@pytest.fixture(scope="module")
def shared(made: Load) -> Iterator[Callable[[str], Engine]]:
    """One engine per drafter, for tests that may find any text in its caches."""
    engines: dict[str, Engine] = {}

    def of(draft: str) -> Engine:
        if draft not in engines:
            engines[draft] = made(draft)
        return engines[draft]

    yield of
    for engine in engines.values():
        engine.close()


@pytest.fixture(scope="module")
def plain(shared: Callable[[str], Engine]) -> Callable[..., Result]:
    """Plain decoding, to compare with."""

    def generate(prompt: Any = PROMPT, **options: Any) -> Result:
        return shared("none").generate(prompt, **options)

    return generate


# The package.


def test_public_names() -> None:
    assert sorted(localspec.__all__) == [
        "Answer",
        "AsyncAnswer",
        "AsyncGeneration",
        "ContextFullError",
        "Conversation",
        "DeviceError",
        "Draft",
        "Drafter",
        "DrafterMismatchError",
        "Dropped",
        "Ended",
        "Engine",
        "Gauge",
        "Generation",
        "GenerationConfig",
        "InterruptedTextError",
        "InvalidValueError",
        "Limit",
        "LocalspecError",
        "ModelLoadError",
        "ModelNotFoundError",
        "Notice",
        "OutOfMemoryError",
        "Outcome",
        "Piece",
        "Placement",
        "Reading",
        "Result",
        "SamplingParams",
        "Session",
        "Stats",
        "Token",
        "Traits",
        "Turn",
        "WorkerError",
        "load",
        "watched",
    ]


def test_every_public_name_is_there_and_documented() -> None:
    for name in localspec.__all__:
        assert getattr(localspec, name).__doc__, name
    assert dir(localspec) == localspec.__all__


def test_misspelt_options_of_loading_name_the_right_ones(shared: Callable[[str], Engine]) -> None:
    refused = localspec.InvalidValueError
    for name in ("ctx", "n_ctx"):
        with pytest.raises(refused, match=f"setting '{name}'; did you mean context"):
            localspec.load(**{name: 64})
    with pytest.raises(refused, match="setting 'drafter'; did you mean draft"):
        shared("none").switch(drafter="none")  # type: ignore[call-arg]


def test_what_holds_a_model_is_neither_pickled_nor_copied(
    shared: Callable[[str], Engine],
) -> None:
    engine = shared("none")
    with localspec.Session(engine) as session, engine.stream(PROMPT) as text:
        for each in (engine, session, text):
            for way in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(LocalspecError, match="in each process"):
                    way(each)
        assert repr(session.conversation) == "<Conversation of 0 turns>"
    assert repr(engine.astream(PROMPT)) == "<AsyncGeneration, not begun>"


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        localspec.no_such_name  # noqa: B018


def test_importing_costs_nothing() -> None:
    heavy = "[name for name in ('llama_cpp', 'numpy', 'jinja2', 'click') if name in sys.modules]"
    code = f"import sys, localspec; print({heavy})"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


# Results.


@pytest.mark.parametrize("depth", [3, None])
def test_a_result_is_consistent(depth: int | None) -> None:
    with load_pycode() as engine:
        result = engine.generate(PROMPT, max_tokens=40, seed=5, depth=depth, logit_bias=ENDLESS)
        pieces = b"".join(engine.model.piece(token) for token in result.token_ids)
        assert {*result.origins} <= {"suffix", MODEL, *OWN}
    assert isinstance(result, Result)
    assert result.text == pieces.decode("utf-8", "replace")
    assert len(result.token_ids) == len(result.origins) == 40
    assert result.logprobs is None
    assert (result.stop_reason, result.seed, result.rule) == ("length", 5, "coupled")
    stats = result.stats
    assert stats.generated_tokens == 40
    assert stats.accepted == sum(origin not in OWN for origin in result.origins)
    assert stats.accepted > 0 or depth is None
    assert len(stats.widths) == stats.steps
    assert stats.drafted <= sum(stats.widths) - stats.steps
    assert sum(stats.accepted_per_position) == stats.accepted <= stats.drafted
    assert stats.steps + stats.accepted == 40
    assert stats.prompt_tokens == stats.prompt_evaluated
    assert stats.seconds.load > 0
    assert stats.seconds.draft + stats.seconds.verify <= stats.seconds.generate
    assert stats.seconds.verify <= stats.seconds.steps
    assert 0 <= stats.seconds.between_steps < stats.seconds.generate / 2


def test_a_seed_is_drawn_when_none_is_given(shared: Callable[[str], Engine]) -> None:
    first, second = (shared("auto").generate(PROMPT, max_tokens=30) for _ in range(2))
    assert first.seed != second.seed
    again = shared("auto").generate(PROMPT, max_tokens=30, seed=first.seed)
    assert again.token_ids == first.token_ids


@pytest.mark.parametrize("draft", DRAFTERS)
def test_stream_yields_the_tokens_of_the_result(
    shared: Callable[[str], Engine], plain: Callable[..., Result], draft: str
) -> None:
    expected = plain(max_tokens=60, seed=8, logprobs=True)
    running = shared(draft).stream(PROMPT, max_tokens=60, seed=8, depth=depth_of(draft))
    assert running.stop_reason is None
    tokens = list(running)
    assert all(isinstance(token, Token) for token in tokens)
    assert [token.id for token in tokens] == expected.token_ids
    assert "".join(token.text for token in tokens) == expected.text == running.result().text
    assert tokens == running.tokens
    logprobs = [token.logprob for token in tokens]
    assert all(logprob is not None and logprob <= 0 for logprob in logprobs)
    assert logprobs == pytest.approx(expected.logprobs, abs=1e-4)
    origins = {*running.result().origins}
    assert origins <= {*shared(draft).drafter_set.names, *OWN}
    if draft != "auto":
        names = {"model": MODEL, "both": MODEL, "none": "plain"}
        assert names.get(draft, draft) in origins


def test_logprobs_can_be_left_out_and_asked_for(shared: Callable[[str], Engine]) -> None:
    engine = shared("auto")
    assert [t.logprob for t in engine.stream(PROMPT, max_tokens=3, logprobs=False)] == [None] * 3
    result = engine.generate(PROMPT, max_tokens=3, logprobs=True, seed=1)
    assert result.logprobs is not None
    assert len(result.logprobs) == len(result.token_ids)


@pytest.mark.parametrize("draft", DRAFTERS)
def test_probabilities_behind_the_samplers(
    shared: Callable[[str], Engine], plain: Callable[..., Result], draft: str
) -> None:
    """Those of plain decoding, penalties of drafted tokens included."""
    options: Any = {
        "max_tokens": 40, "seed": 8, "logprobs": True, "top_logprobs": 3, "top_k": 3, "min_p": 0,
        "top_p": 1, "repeat_penalty": 1.3, "post_sampling_probs": True,
    }  # fmt: skip
    expected = plain(**options)
    found = shared(draft).generate(PROMPT, depth=depth_of(draft), **options)
    assert found.token_ids == expected.token_ids
    assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-4)
    for token, logprob, top in zip(
        found.token_ids, found.logprobs or (), found.top_logprobs or (), strict=True
    ):
        assert sum(math.exp(value) for _, value in top) == pytest.approx(1)
        assert dict(top)[token] == logprob


@pytest.mark.parametrize("draft", ["auto", "model"])
@pytest.mark.parametrize("depth", [1, 2, 5, 16])
def test_depth_changes_the_steps_and_not_the_text(
    shared: Callable[[str], Engine], plain: Callable[..., Result], depth: int, draft: str
) -> None:
    got = shared(draft).generate(PROMPT, max_tokens=60, seed=8, depth=depth)
    expected = plain(max_tokens=60, seed=8)
    assert got.token_ids == expected.token_ids
    assert got.stats.steps < expected.stats.steps
    assert len(got.stats.accepted_per_position) <= depth
    # Nothing is padded: at most the pending token and the draft.
    assert max(got.stats.widths) == depth + 1


def test_each_decision_is_explained(
    shared: Callable[[str], Engine], plain: Callable[..., Result]
) -> None:
    """One per step, before it, in numbers; and none where there is nothing to decide."""
    decisions: list[Explanation] = []
    engine = shared("auto")
    running = engine.stream(PROMPT, max_tokens=60, seed=8, explain=decisions.append)
    for _ in running:
        assert len(decisions) == running.stats.steps
    assert running.result().token_ids == plain(max_tokens=60, seed=8).token_ids
    for decision, width in zip(decisions, running.stats.widths, strict=True):
        assert decision.drafter in (None, "suffix", MODEL)
        assert (decision.depth > 0) is (decision.drafter is not None)
        assert decision.expected >= 1 and decision.rate > 0 and decision.plain_rate > 0
        assert decision.reason
        assert 1 <= width <= WIDEST
    told = len(decisions)
    engine.generate(PROMPT, max_tokens=5, seed=8)
    engine.generate(PROMPT, max_tokens=5, seed=8, depth=3, explain=decisions.append)
    assert len(decisions) == told


def test_a_stop_string_ends_the_text(
    shared: Callable[[str], Engine], plain: Callable[..., Result]
) -> None:
    whole = plain(max_tokens=40, seed=8, logit_bias=ENDLESS).text
    stop = whole[25:31]
    options: dict[str, Any] = {"max_tokens": 40, "seed": 8, "logit_bias": ENDLESS}
    for stops, depth in ((stop, 3), ([stop], 7), (("never", stop), None)):
        got = shared("auto").generate(PROMPT, stop=stops, depth=depth, **options)
        assert got.text == whole[: whole.index(stop)]
        assert got.stop_reason == "stop"
    for got in shared("auto").generate([PROMPT] * 2, stop=iter([stop]), **options):
        assert got.text == whole[: whole.index(stop)]


# Prompts.


def test_token_ids_are_a_prompt(
    shared: Callable[[str], Engine], plain: Callable[..., Result]
) -> None:
    engine = shared("auto")
    ids = engine.model.tokenize(PROMPT)
    assert engine.generate(ids, max_tokens=20, seed=3).text == plain(max_tokens=20, seed=3).text


def test_messages_are_a_prompt(
    shared: Callable[[str], Engine], plain: Callable[..., Result]
) -> None:
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes?"},
        {"role": "user", "content": "bye"},
    ]
    got = shared("auto").generate(messages, max_tokens=20, seed=3)
    text = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    assert got.token_ids == plain(f"{text}<|im_start|>assistant\n", max_tokens=20, seed=3).token_ids


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([5, 4096], "prompt token is 4096; it must be at least 0 and at most 4095"),
        ([-1], "prompt token is -1"),
        ([7] * 2048, "the prompt has 2048 tokens and the context holds 2048"),
    ],
)
def test_prompts_that_cannot_be(
    shared: Callable[[str], Engine], prompt: Sequence[int], message: str
) -> None:
    with pytest.raises(localspec.InvalidValueError, match=message):
        shared("auto").generate(prompt)


@pytest.mark.parametrize(("family", "scales"), [("llama", True), ("gpt2", False)])
def test_rotations_are_no_way_out_where_there_are_none(
    family: str, scales: bool, tmp_path: Path
) -> None:
    """A table of positions ends where it ends."""
    path = write_tiny(tmp_path / "tiny.gguf", family)
    with (
        localspec.load(path, "none", threads=1) as engine,
        pytest.raises(localspec.InvalidValueError, match="a model that was made for more") as said,
    ):
        engine.generate([7] * engine.context)
    assert ("rope_scale" in str(said.value)) == scales


# GenerationConfig.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tempreture": 1.0}, "there is no setting 'tempreture'; did you mean temperature?"),
        ({"n_predict": 4}, "there is no setting 'n_predict'; did you mean max_tokens?"),
        ({"max_token": 4}, "there is no setting 'max_token'; did you mean max_tokens?"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"depth": -1}, "depth is -1"),
        ({"depth": 63}, "depth is 63; it must be at least 0 and at most 62"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"rule": "guess"}, "rule is 'guess'; choose from: .*coupled"),
        ({"seed": -1}, "seed is -1"),
        ({"stop": [""]}, "a stop string is empty"),
        ({"logit_bias": {4096: 1.0}}, "logit_bias token is 4096"),
        ({"grammar": "root ::= x"}, "grammar, line 1, column 10"),
        ({"schema": {"not": {}}}, "schema: not is {}, and no text"),
        ({"schema": {}, "grammar": 'root ::= "a"'}, "both a grammar and a schema"),
        ({"response_format": {"type": "yaml"}}, 'response_format is {"type": "yaml"}'),
    ],
)
def test_settings_that_cannot_be(
    shared: Callable[[str], Engine], options: dict[str, Any], message: str
) -> None:
    for start in (shared("auto").generate, shared("auto").stream):
        with pytest.raises(localspec.InvalidValueError, match=message):
            start(PROMPT, **options)


def test_a_refused_setting_leaves_the_running_text_alone(load: Load) -> None:
    engine = load()
    running = engine.stream(PROMPT, max_tokens=20, seed=1, logit_bias=ENDLESS)
    next(running)
    with pytest.raises(localspec.InvalidValueError):
        engine.stream(PROMPT, depth=-1)
    assert len(running.result().token_ids) == 20


# Stopping early: the caches hold what the engine thinks they hold.


@pytest.fixture(scope="module")
def assert_like_new(made: Load, shared: Callable[[str], Engine]) -> Callable[[str], None]:
    """The next texts are those of engines that did nothing before: going on, and other ones.

    Their origins are as well, once the drafter has read the prompt: one that lost its place drafts
    badly, but harms no text. Only the suffix drafter is meant to remember other texts, and `auto`
    what took how long.
    """
    prompts = (PROMPT, PROMPT + ", size", OTHER, PROMPT)
    known: dict[tuple[str, str], Result] = {}

    def expected(draft: str, prompt: str) -> Result:
        if (draft, prompt) not in known:
            with made(draft) as engine:
                generated(engine, prompt, depth_of(draft))
                known[draft, prompt] = generated(engine, prompt, depth_of(draft))
        return known[draft, prompt]

    def generated(engine: Engine, prompt: str, depth: int | None) -> Result:
        return engine.generate(prompt, max_tokens=30, seed=2, logprobs=True, depth=depth)

    def check(draft: str) -> None:
        for prompt in prompts:
            got = generated(shared(draft), prompt, depth_of(draft))
            fresh = expected(draft, prompt)
            assert got.token_ids == fresh.token_ids == expected("none", prompt).token_ids
            if draft not in ("auto", "both"):
                again = generated(shared(draft), prompt, depth_of(draft))
                assert again.origins == fresh.origins
            assert got.logprobs == pytest.approx(fresh.logprobs, abs=1e-4)

    return check


@pytest.mark.parametrize("taken", [0, 1, 2, 3, 4, 7, 12])
@pytest.mark.parametrize("draft", DRAFTERS)
def test_closing_early_leaves_the_caches_consistent(
    shared: Callable[[str], Engine],
    assert_like_new: Callable[[str], None],
    draft: str,
    taken: int,
) -> None:
    running = shared(draft).stream(
        PROMPT, max_tokens=100, seed=6, depth=depth_of(draft, 4), logit_bias=ENDLESS
    )
    for _ in range(taken):
        next(running)
    running.close()
    assert running.stop_reason == "cancelled"
    assert list(running) == []
    assert len(running.result().token_ids) == taken
    assert_like_new(draft)


@pytest.mark.parametrize("draft", DRAFTERS)
def test_an_exception_in_the_consumer_leaves_the_caches_consistent(
    shared: Callable[[str], Engine], assert_like_new: Callable[[str], None], draft: str
) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        shared(draft).stream(PROMPT, seed=6, depth=depth_of(draft), logit_bias=ENDLESS) as running,
    ):
        for _ in running:
            if len(running.tokens) == 6:
                raise ZeroDivisionError
    assert running.stop_reason == "cancelled"
    assert_like_new(draft)


@pytest.mark.parametrize("draft", DRAFTERS)
def test_an_error_within_a_step_leaves_the_caches_consistent(
    shared: Callable[[str], Engine], assert_like_new: Callable[[str], None], draft: str
) -> None:
    """After the pass over the draft, before anything of it is kept."""
    nothing = dict.fromkeys(range(4096), float("-inf"))
    with pytest.raises(LocalspecError, match="every token is forbidden"):
        shared(draft).generate(PROMPT, depth=depth_of(draft), logit_bias=nothing)
    assert_like_new(draft)


@pytest.mark.parametrize("draft", DRAFTERS)
def test_an_interrupt_within_a_step_leaves_the_caches_consistent(
    shared: Callable[[str], Engine],
    assert_like_new: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    draft: str,
) -> None:
    engine = shared(draft)
    running = engine.stream(PROMPT, seed=6, depth=depth_of(draft, 4), logit_bias=ENDLESS)
    for _ in range(6):
        next(running)
    with monkeypatch.context() as patch:
        patch.setattr(Decoder, "_emitted", interrupt)
        with pytest.raises(KeyboardInterrupt):
            list(running)
    assert list(running) == []
    assert_like_new(draft)


def interrupt(*_args: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("draft", DRAFTERS)
def test_cancelling_from_another_thread_ends_within_one_step(
    shared: Callable[[str], Engine], assert_like_new: Callable[[str], None], draft: str
) -> None:
    cancel, depth = threading.Event(), depth_of(draft, 4)
    deepest = WIDEST - 1 if depth is None else depth
    running = shared(draft).stream(
        PROMPT, cancel=cancel, max_tokens=500, seed=6, depth=depth, logit_bias=ENDLESS
    )
    for _ in running:
        if len(running.tokens) == 10:
            other = threading.Thread(target=cancel.set)
            other.start()
            other.join()
    assert 10 <= len(running.tokens) <= 10 + deepest + 1
    assert running.stop_reason == "cancelled"
    assert_like_new(draft)


@pytest.mark.parametrize("draft", ["auto", "model"])
def test_cancelling_at_any_moment(
    shared: Callable[[str], Engine],
    plain: Callable[..., Result],
    assert_like_new: Callable[[str], None],
    draft: str,
) -> None:
    """The other thread does not wait for a token to be done."""
    engine = shared(draft)
    options: dict[str, Any] = {"max_tokens": 1000, "seed": 6, "logit_bias": ENDLESS}
    whole = plain(**options).token_ids
    for _ in range(5):
        cancel, started = threading.Event(), threading.Event()

        def stop(started: threading.Event = started, cancel: threading.Event = cancel) -> None:
            started.wait()
            cancel.set()

        other = threading.Thread(target=stop)
        other.start()
        running = engine.stream(PROMPT, cancel=cancel, depth=depth_of(draft), **options)
        next(running)
        started.set()
        result = running.result()
        other.join()
        assert result.token_ids == whole[: len(result.token_ids)]
    assert_like_new(draft)


def test_cancelled_before_it_began(shared: Callable[[str], Engine]) -> None:
    cancel = threading.Event()
    cancel.set()
    result = shared("auto").generate(OTHER + PROMPT, cancel=cancel)
    assert (result.token_ids, result.text, result.stop_reason) == ([], "", "cancelled")
    assert result.stats.steps == 0
    assert result.stats.tokens_per_step is None


def test_a_stream_goes_on_beside_the_one_before(
    shared: Callable[[str], Engine], plain: Callable[..., Result]
) -> None:
    engine = shared("auto")
    first = engine.stream(PROMPT, seed=6, max_tokens=20, logit_bias=ENDLESS)
    next(first)
    second = engine.stream(OTHER, max_tokens=30, seed=2)
    assert second.result().token_ids == plain(OTHER, max_tokens=30, seed=2).token_ids
    assert len(first.result().token_ids) == 20
    assert first.stop_reason == "length"


# Prefix reuse.


@pytest.mark.parametrize("draft", DRAFTERS)
def test_a_second_turn_evaluates_only_what_is_new(load: Load, draft: str) -> None:
    engine = load(draft)
    first_turn = engine.model.tokenize(PROMPT)
    how: dict[str, Any] = {"seed": 4, "depth": depth_of(draft)}
    first = engine.generate(first_turn, max_tokens=20, logit_bias=ENDLESS, **how)
    assert first.stats.prompt_evaluated == first.stats.prompt_tokens == len(first_turn)
    new = engine.model.tokenize("\n\n# more", add_special=False)
    second = engine.generate([*first_turn, *first.token_ids, *new], max_tokens=5, **how)
    assert second.stats.prompt_tokens == len(first_turn) + 20 + len(new)
    # The last token of the first turn was never put through the target.
    assert second.stats.prompt_evaluated == len(new) + 1
    same = engine.generate([*first_turn, *first.token_ids, *new], max_tokens=5, **how)
    assert same.stats.prompt_evaluated == 1
    assert same.token_ids == second.token_ids


# Grammars and schemas.

POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["x"],
    "additionalProperties": False,
}
FORMATS = [
    {"schema": POINT},
    {"schema": json.dumps(POINT)},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": POINT}}},
]


def test_the_text_satisfies_its_schema(shared: Callable[[str], Engine]) -> None:
    texts = set()
    for draft in DRAFTERS:
        for options in FORMATS:
            result = shared(draft).generate(
                PROMPT, max_tokens=80, seed=4, depth=depth_of(draft), **options
            )
            assert result.stop_reason == "eos"
            assert 0 <= json.loads(result.text)["x"] <= 99
            texts.add(result.text)
    assert len(texts) == 1


def test_response_formats_without_a_schema(shared: Callable[[str], Engine]) -> None:
    engine = shared("auto")
    free = engine.generate(PROMPT, max_tokens=20, seed=4)
    text = engine.generate(PROMPT, max_tokens=20, seed=4, response_format={"type": "text"})
    assert text.token_ids == free.token_ids
    anything = {"type": "json_object"}
    assert engine.generate(PROMPT, max_tokens=9, response_format=anything).text.startswith("{")


def test_what_leaves_no_token_is_said(shared: Callable[[str], Engine]) -> None:
    options: dict[str, Any] = {"grammar": 'root ::= "a"', "ignore_eos": True}
    with pytest.raises(localspec.LocalspecError, match=r"the grammar, .* and ignore_eos leave"):
        shared("auto").generate(PROMPT, **options)


# The context ends.


def test_a_full_context_ends_the_text_and_drafting_changes_nothing(load: Load) -> None:
    results = {}
    for draft in DRAFTERS:
        engine = load(draft, context=64)
        assert engine.context == 64
        results[draft] = engine.generate(
            PROMPT, max_tokens=1000, seed=4, depth=depth_of(draft, 7), logit_bias=ENDLESS
        )
    for result in results.values():
        assert result.stop_reason == "context"
        assert result.stats.prompt_tokens + len(result.token_ids) == 64
        assert result.token_ids == results["none"].token_ids


def test_a_prompt_that_leaves_room_for_one_token(load: Load) -> None:
    engine = load(context=16)
    for depth in (3, None):
        result = engine.generate([7] * 15, max_tokens=10, depth=depth, logit_bias=ENDLESS)
        assert (len(result.token_ids), result.stop_reason) == (1, "context")
    with pytest.raises(localspec.InvalidValueError, match="raise context"):
        engine.generate([7] * 16)


# One's own drafter.


class Oracle(Repeat):
    """Knows what comes; `spoil` changes a proposal at will."""

    name = "oracle"

    def __init__(self, text: Sequence[int], spoil: Callable[[Draft], Draft] = lambda d: d) -> None:
        self.text, self.spoil = list(text), spoil
        self.outcomes: list[Outcome] = []

    def propose(self, limit: Limit) -> Draft:
        start = limit.prefix.position
        return self.spoil(Draft(self.text[start : start + limit.depth]))

    def observe(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)


def test_ten_lines_are_a_drafter(load: Load, plain: Callable[..., Result]) -> None:
    engine = load(Repeat())
    assert isinstance(Repeat(), localspec.Drafter)
    for depth in (3, None):
        result = engine.generate("# " + "-" * 30, max_tokens=60, seed=1, depth=depth)
        assert result.token_ids == plain("# " + "-" * 30, max_tokens=60, seed=1).token_ids
        assert result.stats.accepted == result.origins.count("repeat")
        assert result.stats.drafted > 0 or depth is None
    greedy = engine.generate([7] * 8, max_tokens=8, temperature=0, depth=3, logit_bias={7: 1e3})
    assert greedy.origins == ["repeat", "repeat", "repeat", "bonus"] * 2


@pytest.fixture
def known(plain: Callable[..., Result], shared: Callable[[str], Engine]) -> list[int]:
    """PROMPT and the 40 tokens that follow it with seed 9."""
    ids = shared("none").model.tokenize(PROMPT)
    return [*ids, *plain(ids, max_tokens=40, seed=9, logit_bias=ENDLESS).token_ids]


def test_a_drafter_that_is_always_right(load: Load, known: list[int]) -> None:
    drafter = Oracle(known)
    result = load(drafter).generate(PROMPT, max_tokens=40, seed=9, depth=4, logit_bias=ENDLESS)
    assert result.token_ids == known[-40:]
    assert result.origins == (["oracle"] * 4 + ["bonus"]) * 8
    assert [token for outcome in drafter.outcomes for token in outcome.tokens] == known[-40:]
    assert {outcome.accepted for outcome in drafter.outcomes} == {4}


def test_a_drafter_is_told_how_much_of_its_draft_was_accepted(load: Load, known: list[int]) -> None:
    """Its third token is wrong; a drafter that did not draft is told of nothing accepted."""

    def spoil(draft: Draft) -> Draft:
        return Draft([token if at != 2 else token ^ 1 for at, token in enumerate(draft.tokens)])

    drafter, other = Oracle(known, spoil), Oracle(known)
    other.name = "other"
    engine = load([drafter, other])
    result = engine.generate(PROMPT, max_tokens=39, seed=9, depth=4, logit_bias=ENDLESS)
    assert result.token_ids == known[-40:-1]
    assert [outcome.accepted for outcome in drafter.outcomes] == [2] * 13
    assert [outcome.accepted for outcome in other.outcomes] == [0] * 13
    assert result.stats.accepted == 26


def test_a_drafter_that_proposes_too_much_is_cut(load: Load, known: list[int]) -> None:
    engine = load(Oracle(known, lambda draft: Draft([*draft.tokens, *known[-30:]])))
    result = engine.generate(PROMPT, max_tokens=40, seed=9, depth=3, logit_bias=ENDLESS)
    assert result.token_ids == known[-40:]
    # At the end no more than what is left is drafted, so the last step is shorter.
    assert result.stats.drafted == 30
    assert len(result.stats.accepted_per_position) == 3


def test_a_drafter_that_proposes_nothing(load: Load, known: list[int]) -> None:
    result = load(Oracle(known, lambda _draft: Draft([]))).generate(
        PROMPT, max_tokens=40, seed=9, depth=3, logit_bias=ENDLESS
    )
    assert result.token_ids == known[-40:]
    assert set(result.origins) == {"plain"}
    assert result.stats.acceptance_rate is None


class BrokenError(Exception):
    """What a drafter of one's own may raise."""


def raising(_draft: Draft) -> Draft:
    raise BrokenError("spoilt")


@pytest.mark.parametrize(
    ("spoiled", "error", "message"),
    [
        (
            lambda _draft: Draft([5, 4096]),
            LocalspecError,
            "'oracle' proposed token 4096.* 0 to 4095",
        ),
        (lambda _draft: Draft([-1]), LocalspecError, "'oracle' proposed token -1"),
        (raising, LocalspecError, "'oracle' failed in propose: BrokenError: spoilt"),
    ],
)
def test_a_broken_drafter_is_an_error_and_the_engine_goes_on(
    load: Load,
    known: list[int],
    spoiled: Callable[[Draft], Draft],
    error: type[Exception],
    message: str,
) -> None:
    drafter = Oracle(known)
    engine = load(drafter)
    options: dict[str, Any] = {"max_tokens": 40, "seed": 9, "depth": 3, "logit_bias": ENDLESS}
    running = engine.stream(PROMPT, **options)
    for _ in range(6):
        next(running)
    drafter.spoil = spoiled
    with pytest.raises(error, match=message):
        list(running)
    assert list(running) == []
    drafter.spoil = lambda draft: draft
    again = engine.generate(PROMPT, **options)
    assert again.token_ids == known[-40:]
    assert again.stats.acceptance_rate == 1


@pytest.mark.parametrize("depth", [3, None])
@pytest.mark.parametrize("method", ["begin", "observe"])
def test_a_drafter_that_fails_elsewhere(
    load: Load, known: list[int], monkeypatch: pytest.MonkeyPatch, method: str, depth: int | None
) -> None:
    drafter = Oracle(known)
    engine = load(drafter)
    with monkeypatch.context() as patch:
        patch.setattr(drafter, method, raising)
        with pytest.raises(LocalspecError, match=f"'oracle' failed in {method}: BrokenError"):
            engine.generate(PROMPT, max_tokens=40, seed=9, depth=depth, logit_bias=ENDLESS)
    again = engine.generate(PROMPT, max_tokens=40, seed=9, depth=depth, logit_bias=ENDLESS)
    assert again.token_ids == known[-40:]


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"model": 5}, "model is 5; it must be a text or a Path"),
        ({"model": ["a"]}, "model is ['a']; it must be a text or a Path"),
        ({"rpc": 5}, "rpc is 5; it must be a list of texts"),
        ({"device": [5]}, "device [0] is 5; it must be a text"),
        ({"draft_device": 5}, "draft_device is 5; it must be a list of texts"),
        ({"kv_type": 5}, "kv_type is 5; it must be a text"),
        ({"load_mode": 5}, "load_mode is 5; it must be a text"),
        ({"chat_template": 5}, "chat_template is 5; it must be a text or a Path"),
        ({"copy_from": 5}, "copy_from is 5; it must be a list of paths"),
        ({"copied_texts": [None]}, "copied_texts [0] is None; it must be a text"),
        ({"rpc": "a:1, a:1"}, "rpc is 'a:1, a:1'; it names a:1 twice"),
    ],
)
def test_arguments_of_a_wrong_type_are_named(options: dict[str, Any], line: str) -> None:
    with pytest.raises(localspec.InvalidValueError) as refused:
        localspec.load(**options)
    assert str(refused.value) == line


def test_none_is_the_default_of_every_option() -> None:
    names = signature(localspec.load).parameters.keys() - {"model", "draft"}
    with load_pycode(**dict.fromkeys(names)) as engine:
        assert engine.drafter_set.names
        for wrong in (5, b"a"):
            with pytest.raises(localspec.InvalidValueError, match="model is"):
                engine.switch(wrong)  # type: ignore[arg-type]
        assert len(engine.generate(PROMPT, max_tokens=3, logit_bias=ENDLESS).token_ids) == 3


def test_something_that_is_no_drafter_is_refused() -> None:
    with pytest.raises(
        localspec.InvalidValueError, match="needs name, traits, begin, propose and observe"
    ):
        load_pycode(draft=object())  # type: ignore[arg-type]


# Closed.


def test_using_a_closed_engine_is_an_error_and_no_crash() -> None:
    """In a process of its own: the library would take this one with it."""
    code = """
        import localspec

        engine = localspec.load(threads=1)
        running = engine.stream("def f(")
        next(running)
        engine.close()
        engine.close()
        for read in (list, localspec.Generation.result):
            try:
                read(running)
            except localspec.LocalspecError as error:
                assert str(error) == (
                    "the engine was closed before this text had ended; "
                    "load another with localspec.load and write it again"
                )
            else:
                raise AssertionError("a text was cut off in silence")
        assert len(running.tokens) == 1 and running.stop_reason == "cancelled"
        messages = [{"role": "user", "content": "hi"}]
        for prompt in ("def f(", [5, 6, 7], messages):
            for start in (engine.generate, engine.stream):
                try:
                    list(start(prompt)) if start == engine.stream else start(prompt)
                except localspec.LocalspecError as error:
                    assert "closed" in str(error), error
                else:
                    raise AssertionError(f"{prompt} gave a text")
        print("as it should be")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "as it should be\n"), done.stderr


def test_leaving_the_with_closes() -> None:
    with load_pycode(threads=1) as engine:
        pass
    with pytest.raises(LocalspecError, match="closed"):
        engine.model.handle  # noqa: B018
