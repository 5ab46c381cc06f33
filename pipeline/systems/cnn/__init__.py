"""The convolutional network that document 004 compares with."""
