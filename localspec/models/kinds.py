"""Kinds of drafters: what they are called, and how often they are usually right."""

from localspec.gguf.assistant import ASSISTANT as ASSISTANT
from localspec.gguf.block_heads import DFLASH, DFLASH2, DSPARK
from localspec.gguf.heads import EAGLE3
from localspec.gguf.heads import MTP as MTP
from localspec.gguf.mask_token import PARD
from localspec.gguf.matrix_heads import MEDUSA as MEDUSA
from localspec.gguf.matrix_heads import MLP as MLP

DRAFT_MODEL = "draft-model"
# A draft model with another vocabulary. Its files are those of DRAFT_MODEL; which one it is depends
# on the target.
THROUGH_TEXT = "draft-model through text"

# In the order in which drafters that nobody has measured are tried: those that read hidden states
# and draft one token at a time, those that draft a block, those that need a model of their own.
KINDS = (MTP, ASSISTANT, DFLASH2, DSPARK, DFLASH, EAGLE3, MEDUSA, MLP, PARD, DRAFT_MODEL)

# Drafters of these kinds draft all their tokens in one pass.
ONE_PASS = frozenset({PARD, DFLASH, DFLASH2, DSPARK, MEDUSA})
# Drafters of these kinds read hidden states of one target, which they were made for.
HEADS = frozenset({MTP, ASSISTANT, DFLASH2, DSPARK, DFLASH, EAGLE3, MEDUSA, MLP})

# The share of drafted tokens that targets usually accept, where those before them were accepted:
# the lowest and the highest that most reports say of a kind (docs/heads.md). It is expected only
# of pairs of which nothing was measured.
_USUAL_RATES = {
    MTP: (0.6, 0.85),
    ASSISTANT: (0.6, 0.85),
    DFLASH2: (0.6, 0.8),
    DSPARK: (0.55, 0.8),
    DFLASH: (0.5, 0.75),
    EAGLE3: (0.5, 0.75),
    MEDUSA: (0.4, 0.6),
    MLP: (0.4, 0.6),
    PARD: (0.5, 0.75),
    DRAFT_MODEL: (0.6, 0.8),
    THROUGH_TEXT: (0.4, 0.65),
}

# Kinds that files are not called by: their names say the other one.
_CALLED = {DFLASH2: DFLASH, ASSISTANT: MTP}


def usual_rates(kind: str) -> tuple[float, float]:
    """Return the lowest and the highest usual acceptance rate of drafters of a kind."""
    return _USUAL_RATES.get(kind, _USUAL_RATES[DRAFT_MODEL])


def is_kind(given: str, wanted: str) -> bool:
    """Whether a drafter of one kind is what a user means by another.

    `dflash` is DFlash2 too, and `mtp` the assistant of Gemma 4: names of files do not tell them
    apart.
    """
    return wanted in (given, _CALLED.get(given)) or _CALLED.get(wanted) == given
