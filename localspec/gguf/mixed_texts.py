"""Mixed texts: architectures for which llama.cpp computes passes of several texts wrongly.

With llama-cpp-python 0.3.36, as soon as one decode has rows of two texts:

- `arwkv7` and `rwkv6qwen2` keep the wrong rows for the next token, where a text has several
  (`build_rwkv_token_shift_store` takes rows with gaps between them for neighbours);
- `plamo2` swaps texts and tokens (`ggml_permute` of `zx`), and where the decode leaves out the
  first text of the cache, it writes states behind their end, or ends the process.

tests/engine/test_architectures.py writes texts side by side with every architecture, and so finds
the next one.
"""

from localspec.gguf.reader import Header

_MIXING = ("arwkv7", "plamo2", "rwkv6qwen2")


def mixes_texts(header: Header) -> bool:
    """Whether texts of this model must not share a decode, and so have caches of their own."""
    return header.architecture in _MIXING
