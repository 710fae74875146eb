"""Model-free drafters by name: they copy what the text, or an earlier one, already holds."""

from collections.abc import Iterable, Sequence

from localspec.drafters.ngram import Ngram
from localspec.drafters.prompt_lookup import PromptLookup
from localspec.drafters.suffix import Suffix
from localspec.speculation.drafter import Drafter

MODEL_FREE = {"suffix": Suffix, "lookup": PromptLookup, "ngram": Ngram}


def model_free_drafter(name: str, past: Iterable[Sequence[int]] = ()) -> Drafter:
    """A new drafter by its name in MODEL_FREE. past: earlier texts that suffix may copy from."""
    return Suffix(past=past) if name == "suffix" else MODEL_FREE[name]()
