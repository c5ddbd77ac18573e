"""The generative model: its settings and parameters, from latents to images and back."""
