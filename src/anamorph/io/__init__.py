"""Files and arrays: images in, models and checkpoints out. Knows no algorithm."""
