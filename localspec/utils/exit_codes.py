"""Exit codes, as shells give them to programs that a signal has ended."""

# What is added to the number of the signal.
SIGNALLED = 128
# That of Ctrl-C.
INTERRUPTED = 130
