"""Beginnings in the manner of the standard library modules the bundled pair was not trained on."""

PROMPTS = [
    'def heapreplace(heap, item):\n    """Pop and return the current smallest value, and add',
    "class TextWrapper:\n    def __init__(self, width=70, initial_indent='', tabsize=8):",
    "class DictReader:\n    def __init__(self, f, fieldnames=None, restkey=None):\n        self._",
    "def mean(data):\n    n = len(data)\n    if n < 1:\n        raise",
    "def insort_left(a, x, lo=0, hi=None, *, key=None):",
]
