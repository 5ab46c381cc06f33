"""The fault campaign: reproductions that are killed, damaged and cut off, then finished and compared bit for bit."""
