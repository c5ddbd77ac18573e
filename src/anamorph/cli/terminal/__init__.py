"""What commands share: options, settings, progress, messages, errors, outputs."""
