"""What travels between coordinator and sites: messages, their shapes, and refusals by name."""
