"""A drafter that draws trees from a toy model."""

from collections.abc import Sequence

import numpy as np
from fakes.toy import ToyModel

from localspec.sampling.distribution import Distribution
from localspec.speculation.draft import ROOT, Draft
from localspec.speculation.drafter import Limit, Outcome, Traits


class TreeDrafter:
    """Draws a tree from a toy model.

    shape: how many children each node of a level gets. replacement: whether a sibling may be drawn
    again; without, its law is the model's less the earlier siblings, normalised.
    """

    name = "tree"
    traits = Traits(gives_probs=True)

    def __init__(self, model: ToyModel, shape: Sequence[int], *, replacement: bool = False) -> None:
        self.text: list[int] = []
        self._model = model
        self._shape = shape
        self._replacement = replacement

    def begin(self, tokens: Sequence[int]) -> None:
        self.text = list(tokens)

    def propose(self, limit: Limit) -> Draft:
        tokens: list[int] = []
        parents: list[int] = []
        laws: list[Distribution] = []
        level = [(ROOT, limit.prefix, self.text)]
        for children in self._shape:
            following = []
            for node, prefix, text in level:
                law = whole = limit.sampler.distribution(self._model.logits(text), prefix)
                for _ in range(children):
                    token = limit.sampler.sample(law, prefix)
                    tokens.append(token)
                    parents.append(node)
                    laws.append(law)
                    after = prefix.then(token, whole.state_after(token))
                    following.append((len(tokens) - 1, after, [*text, token]))
                    if len(law) == 1:
                        break
                    law = law if self._replacement else without(law, token)
            level = following
        return Draft(tokens, parents, laws)

    def observe(self, outcome: Outcome) -> None:
        self.text += outcome.tokens


def without(law: Distribution, token: int) -> Distribution:
    """The law after one of its tokens is gone."""
    ids = np.arange(len(law)) if law.ids is None else law.ids
    kept = ids != token
    return Distribution(law.logits[kept], ids[kept], law.temperature)
