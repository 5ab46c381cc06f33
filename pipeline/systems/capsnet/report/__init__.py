"""The page's content about CapsNet."""
