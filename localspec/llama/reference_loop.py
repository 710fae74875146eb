"""ReferenceLoop: the library's own decoding, as in its examples: a pass, its sampler, a pass.

It uses nothing of localspec's decoding, so that the two can be compared: greedy tokens must be
equal, and plain decoding must be as fast.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import llama_cpp

from localspec.errors import LocalspecError
from localspec.llama.library_context import free_context, new_context, set_rope
from localspec.llama.model import Model
from localspec.llama.rope import UNSCALED, RopeScaling
from localspec.sampling.params import SamplingParams
from localspec.utils.closing import Closing


@dataclass(frozen=True, slots=True)
class Decoded:
    """The generated tokens, and the seconds from the end of the prompt to the last token."""

    tokens: list[int]
    seconds: float


class ReferenceLoop(Closing):
    """A context of the library with its default settings.

    n_ctx: the context size in tokens. threads: CPU threads. rope: see there. Raises
    ModelLoadError if memory is too small.
    """

    def __init__(
        self, model: Model, *, n_ctx: int, threads: int, rope: RopeScaling = UNSCALED
    ) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_threads, params.n_threads_batch = n_ctx, threads, threads
        set_rope(params, rope)
        self._handle = new_context(model, params)

    def generate(
        self, prompt: Sequence[int], count: int, sampling: SamplingParams, seed: int = 0
    ) -> Decoded:
        """Generate `count` tokens after a prompt; end-of-text tokens do not stop it.

        Of the sampling settings only temperature, top_k, top_p and min_p are used.
        """
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._handle), True)
        sampler, tokens = _sampler(sampling, seed), list[int]()
        try:
            self._evaluate(prompt)
            # A GPU may still be computing.
            llama_cpp.llama_synchronize(self._handle)
            began = perf_counter()
            for _ in range(count):
                tokens.append(llama_cpp.llama_sampler_sample(sampler, self._handle, -1))
                self._evaluate(tokens[-1:])
            llama_cpp.llama_synchronize(self._handle)
            return Decoded(tokens, perf_counter() - began)
        finally:
            llama_cpp.llama_sampler_free(sampler)

    def close(self) -> None:
        """Free the context."""
        handle, self._handle = self._handle, None
        free_context(handle)

    def _evaluate(self, tokens: Sequence[int]) -> None:
        ids = (llama_cpp.llama_token * len(tokens))(*tokens)
        batch = llama_cpp.llama_batch_get_one(ids, len(tokens))
        if status := llama_cpp.llama_decode(self._handle, batch):
            raise LocalspecError(f"llama.cpp could not evaluate {len(tokens)} tokens ({status})")


def _sampler(sampling: SamplingParams, seed: int) -> Any:
    chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
    if sampling.temperature == 0:
        links = [llama_cpp.llama_sampler_init_greedy()]
    else:
        links = [
            llama_cpp.llama_sampler_init_top_k(sampling.top_k),
            llama_cpp.llama_sampler_init_top_p(sampling.top_p, 1),
            llama_cpp.llama_sampler_init_min_p(sampling.min_p, 1),
            llama_cpp.llama_sampler_init_temp(sampling.temperature),
            llama_cpp.llama_sampler_init_dist(seed),
        ]
    for link in links:
        llama_cpp.llama_sampler_chain_add(chain, link)
    return chain
