"""How well models predict what they have not seen, beside simple baselines."""
