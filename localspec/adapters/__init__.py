"""Adapters: localspec's drafters for programs that stay with llama-cpp-python.

    from llama_cpp import Llama
    from localspec.adapters import draft_model

    llm = Llama("model.gguf", draft_model=draft_model("suffix"))

What `Llama` writes is not changed by drafts: it draws each token itself, and keeps a drafted one
only where it drew the same. Heads read rows of the target that `Llama` does not hand out; they need
`localspec.load`.
"""

from localspec.adapters.llama_drafter import LlamaDrafter, draft_model

__all__ = ["LlamaDrafter", "draft_model"]
