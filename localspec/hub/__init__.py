"""The Hugging Face Hub: its repositories, downloads, and its cache on this disk."""

from localspec.hub.environment import prepare_environment

prepare_environment()
