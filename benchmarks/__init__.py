"""Speed, against references and against the machine's limits."""
