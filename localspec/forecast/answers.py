"""Answers: texts that the target generates plainly, for drafters to be tried on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from localspec.control.fixed_depth import FixedDepth
from localspec.engine.engine import Engine
from localspec.engine.generation import Generation
from localspec.engine.prompt import Prompt
from localspec.generation_config import GenerationOptions
from localspec.llama.sequence import KVSequence
from localspec.sampling.distribution import Distribution
from localspec.sampling.noise import RandomSource
from localspec.sampling.prefix import Prefix
from localspec.sampling.sampler import Sampler
from localspec.speculation.decoder import Decoder
from localspec.speculation.draft import ROOT, Draft
from localspec.speculation.drafter import Outcome
from localspec.speculation.rules import RULES, Rows, Verdict, coupled
from localspec.stats import Stats


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """One text, generated without a drafter.

    prompt, tokens: ids. limit: the most tokens it could have had. sampler: with which they were
    chosen. stats: of generating it. drawn_from: shortlists of what each token was drawn from; empty
    where they are not known. states: of the sampler before each token; empty where not known.
    """

    prompt: list[int]
    tokens: list[int]
    limit: int
    sampler: Sampler
    stats: Stats
    drawn_from: Sequence[Distribution] = ()
    states: Sequence[float | None] = ()

    def prefix(self, place: int) -> Prefix:
        """The text before a token of the answer, as the sampler knows it."""
        prefix = self.sampler.prefix([*self.prompt, *self.tokens[:place]])
        return replace(prefix, state=self.states[place]) if self.states else prefix

    def outcome(self, place: int, tokens: int = 1, accepted: int = 0) -> Outcome:
        """What a drafter observes of these tokens of the answer."""
        end = place + tokens
        return Outcome(self.tokens[place:end], accepted, self.drawn_from[place:end])

    @property
    def text(self) -> list[int]:
        """Prompt and answer."""
        return [*self.prompt, *self.tokens]


def write_answer(
    engine: Engine, context: KVSequence, prompt: Prompt, **options: Unpack[GenerationOptions]
) -> tuple[RecordedAnswer, list[Distribution]]:
    """Generate an answer; return it with the distributions from which its tokens were drawn.

    context: another cache of the engine's target. options: the rule is `coupled` in any case.
    """
    options |= {"logprobs": False, "rule": "coupled"}
    running = engine.stream(prompt, **options)
    settings, ids = running.settings, running.prompt
    sampler = engine.slots.own.sampler(settings, len(ids))
    distributions: list[Distribution] = []

    def recorded(draft: Draft, target: Rows, position: int, source: RandomSource) -> Verdict:
        law = target(ROOT)
        assert law is not None, "it stands behind no drafted token"
        distributions.append(law.kept())
        return coupled(draft, lambda _: distributions[-1], position, source)

    rule = replace(RULES["coupled"], verify=recorded)
    decoder = Decoder(context, FixedDepth((), 0), rule, sampler, list(ids), Stats())
    written = Generation(decoder, engine.model, settings, context=engine.context).result()
    limit = min(settings.max_tokens, engine.context - len(ids))
    drawn_from = [each.shortlist() for each in distributions]
    states, prefix = list[float | None](), sampler.prefix(ids)
    for token, law in zip(written.token_ids, distributions, strict=True):
        states.append(prefix.state)
        prefix = prefix.then(token, law.state_after(token))
    answer = RecordedAnswer(
        ids, written.token_ids, limit, sampler, written.stats, drawn_from, states
    )
    return answer, distributions
