"""Study of settings that moves the interquartile mean over tasks."""
