"""What the tokens so far decide of an answer's rest goes on with it: grammars, samplers' states."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fakes.pycode import load
from fakes.templates import R1
from fakes.tiny import TURNS, tiny_model, write_tiny

from localspec.conversation.events import Dropped, Piece
from localspec.conversation.session import Session
from localspec.conversation.turns import Turn
from localspec.engine.engine import Engine
from localspec.errors import InvalidValueError
from localspec.sampling.params import SamplerState

EXACT = {"threads": 1, "context": 256, "kv_type": "f32", "drafter_kv_type": "f32"}
GRAMMAR = 'root ::= "[" ("an" | "br") ("-" | " ") ("cs" | "et") ("," ("es" | "\\n" | "é")){4} "]"'
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 3}},
    "required": ["a", "b"],
}
CONSTRAINTS: dict[str, dict[str, Any]] = {
    "grammar": {"grammar": GRAMMAR},
    "schema": {"schema": SCHEMA},
}


STATEFUL: dict[str, dict[str, Any]] = {
    "mirostat": {"mirostat": 1, "mirostat_tau": 1.0, "mirostat_eta": 0.5},
    "mirostat 2.0": {"mirostat": 2, "mirostat_tau": 1.0, "mirostat_eta": 0.5},
    "adaptive-p": {"adaptive_target": 0.3, "adaptive_decay": 0.9, "min_p": 0.0},
}


@pytest.fixture(scope="module")
def leaning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A target that finds some tokens likely, and a drafter that is another such model."""
    folder = tmp_path_factory.mktemp("leaning")
    form: dict[str, Any] = {"template": TURNS, "quantised": False, "leans": True}
    path = write_tiny(folder / "target.gguf", "llama", **form)
    with load(path, write_tiny(folder / "draft.gguf", "llama", seed=1, **form), **EXACT) as engine:
        yield engine


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """A drafter that is its target, so that many drafts are accepted."""
    path = tiny_model("llama")
    with load(path, path, **EXACT) as engine:
        yield engine


def stopped_after(session: Session, tokens: int) -> Turn:
    """An answer that was left after so many of its tokens, in the middle of a step or not."""
    answer = session.send("ab")
    for count, _ in enumerate((each for each in answer if isinstance(each, Piece)), 1):
        if count == tokens:
            break
    answer.close()
    assert answer.turn
    return answer.turn


def whole_and_cut(engine: Engine, **options: Any) -> Iterator[tuple[Turn, Turn]]:
    """An answer, and the same one, stopped after each of its tokens and continued."""
    with Session(engine, **options) as session:
        whole = session.send("ab").result()
    for tokens in range(1, len(whole.written.tokens) + 1):
        with Session(engine, **options) as session:
            if stopped_after(session, tokens).stop_reason != "cancelled":
                continue
            yield whole, session.continue_answer().result()


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize(("temperature", "depth"), [(0, 0), (0, 3), (1, 0), (1, 3)])
def test_a_grammar_goes_on_where_the_answer_was_stopped(
    engine: Engine, constraint: str, temperature: float, depth: int
) -> None:
    options = {"temperature": temperature, "depth": depth, "seed": 5, "max_tokens": 60}
    cuts = 0
    for whole, turn in whole_and_cut(engine, **options, **CONSTRAINTS[constraint]):
        assert whole.stop_reason == "eos"
        assert (turn.written, turn.content, turn.stop_reason) == (
            whole.written,
            whole.content,
            "eos",
        )
        cuts += 1
    assert cuts > 9


def test_a_grammar_goes_on_where_max_tokens_has_cut_the_answer_off(engine: Engine) -> None:
    options = {"temperature": 0, "grammar": GRAMMAR}
    with Session(engine, **options) as session:
        whole = session.send("ab").result()
    with Session(engine, max_tokens=3, **options) as session:
        turn = session.send("ab").result()
        while turn.stop_reason == "length":
            session.continue_answer().result()
        assert (turn.written, turn.stop_reason) == (whole.written, "eos")


@pytest.mark.parametrize("text", ["[", "[an-c", "[br-et,\n,é", "[an-et,es,es,es,es]"])
def test_a_grammar_goes_on_behind_what_the_user_has_written(engine: Engine, text: str) -> None:
    with Session(engine, temperature=1, seed=2, grammar=GRAMMAR) as session:
        session.send("ab").result()
        session.edit_answer(1, text)
        turn = session.continue_answer().result()
        assert turn.content.startswith(text) and turn.stop_reason == "eos"
        assert re.fullmatch(r"\[(an|br)[- ](cs|et)(,(es|\n|é)){4}\]", turn.content)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("an", "'an' cannot come at its beginning"),
        ("[an-et,dn", "'dn' cannot come behind '[an-et,'"),
        ("[an-et,es,es,es,es]!", "'!' cannot come behind '[an-et,es,es,es,es]'"),
    ],
)
def test_an_answer_is_refused_that_is_no_beginning_of_its_grammar(
    engine: Engine, text: str, place: str
) -> None:
    with Session(engine, temperature=0, grammar=GRAMMAR, max_tokens=8) as session:
        session.send("ab").result()
        turn = session.edit_answer(1, text)
        before = (turn.raw, turn.written, turn.content)
        with pytest.raises(
            InvalidValueError, match="is no beginning of what the grammar"
        ) as raised:
            session.continue_answer()
        assert place in str(raised.value) and "\n" not in str(raised.value)
        assert (turn.raw, turn.written, turn.content, turn.stop_reason) == (*before, "edited")
        session.switch(grammar=None, schema=SCHEMA)
        with pytest.raises(InvalidValueError, match="what the schema describes"):
            session.continue_answer()
        session.switch(schema=None)
        assert session.continue_answer().result().content.startswith(text)


def test_a_grammar_describes_what_is_behind_reasoning_that_an_edit_has_kept(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = write_tiny(tmp_path_factory.mktemp("r1") / "r1.gguf", "llama", template=R1)
    with load(path, "none", **EXACT) as engine, Session(engine, temperature=0) as session:
        session.send("ab", max_tokens=5, ignore_eos=True).result()
        turn = session.edit_answer(1, "[an-")
        thought = turn.thought
        session.switch(grammar=GRAMMAR)
        assert thought and turn.raw != turn.content
        for _ in range(3):
            session.continue_answer(max_tokens=2).result()
        session.continue_answer(max_tokens=60).result()
        assert turn.stop_reason == "eos" and turn.thought == thought
        assert turn.content.startswith("[an-") and len(turn.content.split(",")) == 5
        with pytest.raises(InvalidValueError, match="no beginning"):
            session.edit_answer(1, "<")
            session.continue_answer()


def test_a_grammar_goes_on_where_the_oldest_turns_are_dropped(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = write_tiny(
        tmp_path_factory.mktemp("full") / "full.gguf", "llama", template=TURNS, context=96
    )
    grammar = 'root ::= "[" ("an" | "br"){22} "]"'
    with (
        load(path, "none", **{**EXACT, "context": 96}) as engine,
        Session(engine, temperature=0, when_full="drop") as session,
    ):
        session.send("abcdef", max_tokens=12, ignore_eos=True).result()
        answer = session.send("ab", grammar=grammar)
        events = [*answer]
        written = [number for number, each in enumerate(events) if isinstance(each, Piece)]
        [dropped] = [number for number, each in enumerate(events) if isinstance(each, Dropped)]
        assert written[0] < dropped < written[-1]
        assert re.fullmatch(r"\[(an|br){22}\]", answer.text)


def assert_same_state(turn: Turn, whole: Turn) -> None:
    """The same tokens, and the same state but for the digits of passes of other widths."""
    assert turn.written == whole.written
    assert turn.sampler_state and whole.sampler_state
    assert turn.sampler_state.sampler == whole.sampler_state.sampler
    assert turn.sampler_state.value == pytest.approx(whole.sampler_state.value, rel=1e-4)


@pytest.mark.parametrize("sampler", STATEFUL)
@pytest.mark.parametrize(("logprobs", "depth"), [(False, 0), (False, 3), (True, 3)])
def test_the_state_of_a_sampler_goes_on(
    leaning: Engine, sampler: str, logprobs: bool, depth: int
) -> None:
    options = {"temperature": 1, "seed": 11, "ignore_eos": True, "max_tokens": 24}
    options |= {"depth": depth, "logprobs": logprobs, **STATEFUL[sampler]}
    cuts = [*whole_and_cut(leaning, **options)]
    assert len(cuts) == 24
    for whole, turn in cuts:
        assert_same_state(turn, whole)


@pytest.mark.parametrize("sampler", STATEFUL)
def test_the_state_of_a_sampler_is_the_one_behind_the_last_token(
    leaning: Engine, sampler: str
) -> None:
    """However often the answer was cut off, or stopped in the middle of a step."""
    options = {"temperature": 1, "seed": 4, "ignore_eos": True, **STATEFUL[sampler]}
    with Session(leaning, depth=0, max_tokens=21, **options) as session:
        whole = session.send("ab").result()
    with Session(leaning, depth=3, max_tokens=7, **options) as session:
        turn = session.send("ab").result()
        for _ in range(2):
            assert turn.sampler_state != whole.sampler_state
            session.continue_answer().result()
        assert_same_state(turn, whole)
        edited = session.edit_answer(1, turn.content)
        assert edited.sampler_state is None  # it begins anew behind what a user has written
    with Session(leaning, temperature=0, max_tokens=4, **STATEFUL[sampler]) as session:
        assert session.send("ab").result().sampler_state is None


@pytest.mark.parametrize("stopped", [9, 12, 15, 16])
def test_what_was_cut_off_and_then_stopped_has_the_room_it_had(
    engine: Engine, stopped: int
) -> None:
    with Session(engine, temperature=0, ignore_eos=True, max_tokens=8) as session:
        turn = session.send("ab").result()
        answer = session.continue_answer()
        for _ in (each for each in answer if isinstance(each, Piece)):
            if len(answer.origins) == stopped - 8:
                break
        answer.close()
        assert (len(turn.written.tokens), turn.stop_reason) == (stopped, "cancelled")
        session.continue_answer().result()
        assert (len(turn.written.tokens), turn.stop_reason) == (16, "length")
        session.continue_answer().result()
        assert (len(turn.written.tokens), turn.stop_reason) == (24, "length")


def test_the_state_is_that_before_a_stop_string_at_which_the_answer_was_left(
    leaning: Engine,
) -> None:
    """Then it is drawn again, with the state of then."""
    options = {"temperature": 1, "seed": 4, "max_tokens": 24, **STATEFUL["mirostat 2.0"]}
    with Session(leaning, **options, ignore_eos=True) as session:
        content = session.send("ab").result().content
    options |= {"ignore_eos": True, "stop": [content[24:36]]}
    cuts = [*whole_and_cut(leaning, **options)]
    assert cuts
    for whole, turn in cuts:
        assert turn.stop_reason == whole.stop_reason == "stop"
        assert turn.written == whole.written
    with Session(leaning, **options) as session:
        answer = session.send("ab")
        while not answer._writer.detokenizer.stopped:
            next(answer)
        answer.close()
        turn = session.turns[1]
        assert turn.stop_reason == "cancelled"
        session.continue_answer().result()
        assert_same_state(turn, whole)


@pytest.mark.parametrize("sampler", STATEFUL)
def test_the_state_of_another_sampler_is_none_of_ours(leaning: Engine, sampler: str) -> None:
    options = {"temperature": 1, "seed": 4, "ignore_eos": True, "max_tokens": 8}
    with Session(leaning, **options, **STATEFUL[sampler]) as session:
        turn = session.send("ab").result()
        turn.sampler_state = SamplerState("another", 0.5)
        other = session.fork()
        other.turns[1].sampler_state = None
        session.continue_answer().result()
        with other:
            other.continue_answer().result()
            assert other.turns[1].written == turn.written


def test_the_state_begins_anew_behind_reasoning_that_was_ended(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = write_tiny(
        tmp_path_factory.mktemp("r1") / "r1.gguf", "llama", template=R1, quantised=False
    )
    options = {"temperature": 1, "seed": 3, "ignore_eos": True, "max_tokens": 36, "depth": 3}
    options |= {"thinking_budget": 5, **STATEFUL["mirostat 2.0"]}
    with load(path, path, **EXACT) as engine:
        for whole, turn in whole_and_cut(engine, **options):
            assert_same_state(turn, whole)


@pytest.mark.parametrize("regenerated", [False, True])
def test_another_seed_is_refused_as_the_answer_goes_on_with_its_own(
    leaning: Engine, regenerated: bool
) -> None:
    options = {"temperature": 1, "ignore_eos": True, "max_tokens": 4}
    with Session(leaning, **options) as session:
        turn = session.send("ab", seed=5).result()
        if regenerated:
            turn = session.regenerate(seed=5).result()
        assert turn.seed == 5 + regenerated
        before = (turn.written, turn.stop_reason)
        for seed in (0, 9, 2**64 - 1):
            with pytest.raises(
                InvalidValueError, match=f"^seed is {seed}; .* its own seed, {turn.seed},"
            ):
                session.continue_answer(seed=seed)
        assert (turn.written, turn.stop_reason) == before
        session.switch(seed=9)  # of the answers that follow
        for seed in (5, turn.seed, None):
            session.continue_answer(seed=seed).result()
        assert len(turn.written.tokens) == 16


def test_a_seed_of_numpy_is_one(leaning: Engine) -> None:
    with Session(leaning, temperature=1, ignore_eos=True, max_tokens=4, seed=9) as session:
        turn = session.send("ab", seed=0).result()
        session.continue_answer(seed=np.uint64(0)).result()  # type: ignore[arg-type]
        assert len(turn.written.tokens) == 8
        session.send("ab", seed=5).result()
        with pytest.raises(InvalidValueError, match=r"^seed is 0; .* regenerate the answer"):
            session.continue_answer(seed=np.uint64(0))  # type: ignore[arg-type]


def test_another_seed_behind_an_edited_answer_is_chosen_before(leaning: Engine) -> None:
    """Regenerating it would lose what was edited."""
    with Session(leaning, temperature=1, ignore_eos=True, max_tokens=4, seed=9) as session:
        session.send("ab").result()
        session.edit_answer(1, "cd")
        with pytest.raises(InvalidValueError, match="switch the session to another one before"):
            session.continue_answer(seed=5)
        session.switch(seed=5)
        turn = session.edit_answer(1, "cd")
        assert session.continue_answer(seed=5).result() is turn
