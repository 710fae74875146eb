"""Model-free drafters by name: they copy tokens from the text, or from earlier texts."""

from localspec.drafters.earlier_texts import EarlierTexts
from localspec.drafters.ngram import Ngram
from localspec.drafters.prompt_lookup import PromptLookup
from localspec.drafters.suffix import Suffix
from localspec.speculation.drafter import Drafter

MODEL_FREE = {"suffix": Suffix, "lookup": PromptLookup, "ngram": Ngram}


def model_free_drafter(name: str, earlier: EarlierTexts | None = None) -> Drafter:
    """Make the drafter of this name in MODEL_FREE. earlier: other texts for `suffix`."""
    return Suffix(earlier=earlier) if name == "suffix" else MODEL_FREE[name]()
