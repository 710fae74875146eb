"""Environment: settings of huggingface_hub that would end this program while it is imported."""

import os
import warnings
from pathlib import Path

from localspec.errors import HubError, InvalidValueError

_SECONDS = ("HF_HUB_DOWNLOAD_TIMEOUT", "HF_HUB_ETAG_TIMEOUT")
# What huggingface_hub takes for "nothing may be fetched".
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def prepare_environment() -> None:
    """Let huggingface_hub be imported without a traceback, or a warning of what many images set.

    Raises InvalidValueError for a time that is none.
    """
    for name in (*_SECONDS, "HF_ENDPOINT"):
        if os.environ.get(name) == "":
            del os.environ[name]  # as in a compose file that passes on what is not set
    for name in _SECONDS:
        if (value := os.environ.get(name)) is not None and not value.strip().isdecimal():
            raise InvalidValueError(
                f"{name} is {value!r}, which is no whole number of seconds; set {name}=30, or "
                "unset it"
            )
    warnings.filterwarnings("ignore", "The .?HF_HUB_ENABLE_HF_TRANSFER", FutureWarning)


def offline_setting() -> str:
    """Return the variable by which nothing may be fetched."""
    return next((name for name in _OFFLINE if os.environ.get(name)), _OFFLINE[0])


def require_certificates() -> None:
    """Raise HubError where SSL_CERT_FILE names no file; the HTTP client would not say which."""
    file = os.environ.get("SSL_CERT_FILE")
    if file and not Path(file).is_file():
        raise HubError(f"SSL_CERT_FILE names {file}, and there is no such file; set it right")
