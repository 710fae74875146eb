"""Chat tokens: the special tokens of ChatML, and their numbers in the vocabularies made here."""

BEGIN, TURN, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
BEGIN_ID, TURN_ID, END_ID = 0, 1, 2
