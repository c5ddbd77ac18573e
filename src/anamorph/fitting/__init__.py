"""Algorithm 1 on sums over images: sites answer questions, and a fit sees nothing else."""
