"""What commands share: options, settings, images, messages, progress, errors, outputs."""
