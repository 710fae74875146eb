"""The Hugging Face Hub: its repositories, downloads, and its cache on this disk."""
