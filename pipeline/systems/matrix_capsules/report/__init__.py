"""What the page shows of matrix capsules, and of what they are compared with."""
