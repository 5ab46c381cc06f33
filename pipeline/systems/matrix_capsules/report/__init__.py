"""The page's content about matrix capsules, and about the networks that they are compared with."""
