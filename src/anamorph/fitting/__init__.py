"""Algorithm 1 of the paper: EM that sees the images only as sums over them."""
