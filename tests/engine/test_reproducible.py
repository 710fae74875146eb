"""With `reproducible`, no digit depends on drafting, threads, or how the cache came."""

import llama_cpp
import pytest
from fakes.prompts import PROMPTS
from fakes.pycode import load

from localspec.cli.generate_output import cut_line
from localspec.control.cost_profile import CostProfile, DrafterSeconds
from localspec.control.explanation import Explanation
from localspec.conversation.reasoned_text import ReasonedText
from localspec.conversation.session import Session
from localspec.engine.engine import Engine
from localspec.errors import InvalidValueError
from localspec.llama.batch_invariance import InvariantWidth, probe
from localspec.llama.context import single_sequence
from localspec.llama.context_params import ContextParams
from localspec.llama.model import Model
from localspec.speculation.draft import NOTHING, Draft


@pytest.fixture(scope="module")
def engines():  # type: ignore[no-untyped-def]
    made = {
        draft: load(draft=draft, threads=1, context=700, reproducible=True)
        for draft in ("none", "lookup", "suffix", "auto")
    }
    yield made
    for engine in made.values():
        engine.close()


@pytest.mark.slow
def test_threads_do_not_matter(engines: dict[str, Engine]) -> None:
    options = {"max_tokens": 24, "temperature": 0.8, "seed": 1}
    with load(threads=2, context=256, reproducible=True) as two:
        drafted = [two.generate(PROMPTS[0], depth=depth, **options) for depth in (3, None)]
    plain = engines["none"].generate(PROMPTS[0], **options).token_ids
    assert [each.token_ids for each in drafted] == [plain, plain]
    assert drafted[0].stats.accepted > 0


@pytest.mark.parametrize("draft", ["lookup", "suffix", "auto"])
@pytest.mark.parametrize("temperature", [0, 0.8])
def test_the_same_text(engines: dict[str, Engine], draft: str, temperature: float) -> None:
    for seed, prompt in enumerate(PROMPTS[:3]):
        options = {"max_tokens": 64, "temperature": temperature, "seed": seed}
        plain = engines["none"].generate(prompt, **options)
        for depth in (1, 3, 6, None):
            assert engines[draft].generate(prompt, depth=depth, **options).token_ids == (
                plain.token_ids
            )


def test_a_cache_that_grew_in_pieces_gives_the_same_text(engines: dict[str, Engine]) -> None:
    engine = engines["auto"]
    prompt = engine.model.tokenize(PROMPTS[0] * 12)[:560]
    with load(draft="none", threads=1, context=700, reproducible=True) as fresh:
        whole = fresh.generate(prompt, max_tokens=40, seed=1)
    for pieces in ([13, 14, 300], [513], [559]):
        for length in pieces:
            engine.generate(prompt[:length], max_tokens=5, seed=9)
        again = engine.generate(prompt, max_tokens=40, seed=1)
        assert again.stats.prompt_evaluated < len(prompt)
        assert again.token_ids == whole.token_ids


@pytest.mark.slow
def test_the_whole_context_can_be_used(engines: dict[str, Engine]) -> None:
    options = {"max_tokens": 5000, "seed": 1, "ignore_eos": True}
    plain = engines["none"].generate(PROMPTS[1], **options).token_ids
    assert len(plain) > 600
    for draft, depth in (("lookup", 3), ("auto", 3), ("auto", None)):
        assert engines[draft].generate(PROMPTS[1], depth=depth, **options).token_ids == plain


def test_the_context_is_one_number_from_the_beginning_that_a_text_can_have() -> None:
    options = {"max_tokens": 300, "seed": 1, "ignore_eos": True}
    with load(draft="suffix", threads=1, context=128, reproducible=True) as engine:
        context, widths = engine.context, engine.slots.own.loaded.widths
        (found,) = widths.values()
        assert f"context {context}" in repr(engine)
        with Session(engine) as session, Session(engine) as another:
            assert session.gauge.size == another.gauge.size == context
            assert session.send("ab", **options).result().stop_reason == "context"
            assert (session.gauge.used, session.gauge.size) == (context, context)
        assert [*map(id, widths.values())] == [id(found)]  # not tried out a second time
        # Passes of deep drafts may have to be wider.
        widths[31] = InvariantWidth(8, 1.0)
        for depth, length in ((None, context), (31, 121), (3, context)):
            result = engine.generate(PROMPTS[1], depth=depth, **options)
            assert result.stop_reason == "context"
            assert result.stats.prompt_tokens + len(result.token_ids) == length
            assert engine.context == context
            text = ReasonedText(engine, PROMPTS[1], depth=depth, **options)
            assert len(text.prompt) + len([*text]) == length
            assert cut_line(engine, text).startswith(f"the context of {length} tokens is full;")
        engine.switch(draft="none")
        assert engine.context == context == 127


def test_a_context_that_is_too_small_to_try_widths_out_is_said_by_the_text() -> None:
    with load(draft="none", threads=1, context=20, reproducible=True) as engine:
        assert engine.context == 20
        with pytest.raises(InvalidValueError, match="context is 20; passes of 8 rows"):
            engine.generate("ab")
        assert engine.generate("ab", depth=1, max_tokens=3).token_ids


def test_a_probe_leaves_the_cache_empty_and_says_the_price(target_model: Model) -> None:
    with single_sequence(
        target_model, ContextParams(n_ctx=512, threads=1, flash_attention=False)
    ) as context:
        width = probe(context, 4)
        assert (width.least_rows, context.least_rows, context.tokens) == (2, 1, [])
        assert width.cost > 0.5


@pytest.mark.parametrize("n_ctx", [18, 30, 300])
def test_a_probe_fits_any_context_or_says_what_it_needs(target_model: Model, n_ctx: int) -> None:
    with single_sequence(
        target_model, ContextParams(n_ctx=n_ctx, threads=1, flash_attention=False)
    ) as context:
        assert probe(context, 4).least_rows == 2
        if n_ctx == 18:
            with pytest.raises(InvalidValueError, match="context is 18; passes of 5 rows"):
                probe(context, 5)


def test_padding_is_forgotten(target_model: Model) -> None:
    with single_sequence(target_model, ContextParams(n_ctx=64, threads=1)) as context:
        context.least_rows = 8
        assert context.n_ctx == 57
        row = context.extend([5, 6, 7]).copy()
        assert context.tokens == [5, 6, 7]
        context.truncate(2)
        assert (context.extend([7]) == row).all()


def test_a_padded_pass_asks_for_the_rows_of_a_full_one(
    target_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library computes the last layers for rows whose logits are wanted only."""
    asked = []
    with single_sequence(target_model, ContextParams(n_ctx=64, threads=1)) as context:
        decode = llama_cpp.llama_decode
        monkeypatch.setattr(
            llama_cpp,
            "llama_decode",
            lambda handle, batch: (
                asked.append([bool(batch.logits[i]) for i in range(batch.n_tokens)]),
                decode(handle, batch),
            )[1],
        )
        context.extend([5, 6, 7])
        for context.least_rows in (1, 4):
            context.score(8, NOTHING)
            context.commit([])
            context.score(8, Draft([9, 9, 9]))
            context.commit([])
    assert asked[1:] == [[True], [True] * 4, [True] * 4, [True] * 4]


SMALL = {"pycode-4m-q4_0": DrafterSeconds(1e-3, 1e-3, 1e-3)}


def test_plain_decoding_is_priced_as_the_pass_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = CostProfile({1: 1.0, 2: 1.9, 4: 2.0, 8: 8.0}, SMALL)
    monkeypatch.setattr("localspec.loading.loader.calibrate", lambda *_: measured)
    said: list[Explanation] = []
    with load(reproducible=True, draft="auto", threads=1) as engine:
        engine.generate("def f(x):", max_tokens=3, seed=1, explain=said.append)
    assert said[0].plain_rate == 1 / 1.9


def test_no_pass_is_wider_than_those_tried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """However cheap a wider one seems."""
    cheap = CostProfile({1: 1.0, 8: 1.0, 32: 0.99}, SMALL)
    monkeypatch.setattr("localspec.loading.loader.calibrate", lambda *_: cheap)
    with load(reproducible=True, draft="auto", threads=1) as engine:
        result = engine.generate("def f(x):", max_tokens=40, seed=1)
    assert 1 < max(result.stats.widths) <= 8
