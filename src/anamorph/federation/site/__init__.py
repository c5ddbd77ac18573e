"""A site: its agent alone holds images and latents, and decides by its policy what leaves."""
