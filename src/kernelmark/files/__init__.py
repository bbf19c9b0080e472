"""Files as every room reads and writes them: YAML whose values know their line, closed models, whole replacements."""
