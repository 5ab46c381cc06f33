"""The page's content about capsule regression."""
