"""Lack of memory: how llama.cpp and its backends say that there is none left."""

# Letters alone. Names of functions that allocate something say nothing.
_WORDS = (
    "outofmemory",
    "outofdevicememory",
    "outofhostmemory",
    "outofresources",
    "insufficientmemory",
    "failedtoallocate",
    "cantallocate",
    "cannotallocate",
    "unabletoallocate",
    "allocfailed",
    "badalloc",
    # Failed assertions of ggml about what it has allocated.
    "membuffernull",
    "hashvaluesnull",
    "allocsnull",
    "gallocnull",
)


def is_said_in(text: str, further: tuple[str, ...] = ()) -> bool:
    """Whether a text of the library says so. further: words that mean the same."""
    letters = "".join(filter(str.isalpha, text.lower()))
    return any(word in letters for word in (*_WORDS, *further))
