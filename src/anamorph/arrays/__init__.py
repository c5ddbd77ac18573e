"""Where arrays live: in memory, on a GPU, in mapped files; and how work is divided to fit."""
