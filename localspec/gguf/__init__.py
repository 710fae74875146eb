"""GGUF files, read and checked without llama.cpp."""
