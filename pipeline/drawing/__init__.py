"""Style, tables and pictures that every system's report uses."""
