"""Final returns of the modern presets."""
