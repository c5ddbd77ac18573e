"""A site: its agent holds images and latents, and decides by policy and ledger what may leave."""
