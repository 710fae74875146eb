"""Model-free drafters by name: they copy tokens from the text, or from earlier texts."""

from collections.abc import Iterable, Sequence

from localspec.drafters.ngram import Ngram
from localspec.drafters.prompt_lookup import PromptLookup
from localspec.drafters.suffix import Suffix
from localspec.speculation.drafter import Drafter

MODEL_FREE = {"suffix": Suffix, "lookup": PromptLookup, "ngram": Ngram}


def model_free_drafter(name: str, past: Iterable[Sequence[int]] = ()) -> Drafter:
    """Make the drafter of this name in MODEL_FREE. past: other texts for `suffix`."""
    return Suffix(past=past) if name == "suffix" else MODEL_FREE[name]()
