"""What a drafter learns from: texts of the target, and what the target computes on them."""
