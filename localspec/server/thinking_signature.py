"""Thinking signature: what a thinking block of Anthropic's protocol has beside its text.

Clients send a block back only where it has one. Of a block whose text is left out it holds the
text: so the model finds its reasoning in the next request, as it would with the text.
"""

from base64 import b64decode, b64encode
from binascii import Error

SIGNATURE = "localspec"
_HOLDS = f"{SIGNATURE}:"


def signature_of(text: str) -> str:
    """The signature of a block that is shown without this text."""
    return _HOLDS + b64encode(text.encode(errors="surrogatepass")).decode()


def text_in(signature: str) -> str:
    """The text that a signature holds; of another server's, none."""
    if not signature.startswith(_HOLDS):
        return ""
    try:
        return b64decode(signature.removeprefix(_HOLDS)).decode(errors="replace")
    except (Error, ValueError):
        return ""
