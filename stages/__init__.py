"""One thin file per DVC stage."""
