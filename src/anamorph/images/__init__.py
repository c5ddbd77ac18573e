"""Images of people: arrays and files of many kinds, as float32 channels with NaN for missing."""
