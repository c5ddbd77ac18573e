"""Files that are written whole or not at all: models, checkpoints, tables, volumes, pictures."""
