"""The study of capsule regression. Each module of the folder `experiments` runs one kind of this study."""
