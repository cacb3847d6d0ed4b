"""Final returns and learning curves of the modern presets."""
