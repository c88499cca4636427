"""Published experiments on learning from private label proportions, re-made on junction counts."""
