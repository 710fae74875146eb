"""Adapters: localspec's drafters for programs that stay with llama-cpp-python.

    from llama_cpp import Llama
    from localspec.adapters import draft_model

    llm = Llama("model.gguf", n_ctx=4096, logits_all=True, draft_model=draft_model("suffix"))

What `Llama` writes is not changed by drafts: it draws each token itself, and keeps a drafted one
only where it drew the same. Without `logits_all`, `Llama` with any draft model has room for the
logits of `n_batch` tokens, and fails at longer texts; with it, for all `n_ctx` of them (`n_ctx` x
vocabulary x 4 bytes). Heads read rows of the target that `Llama` does not hand out; they need
`localspec.load`.
"""

from localspec.adapters.llama_drafter import LlamaDrafter, draft_model

__all__ = ["LlamaDrafter", "draft_model"]
