"""CapsNet with and without routing, document 001 (Kiefer et al. 2022)."""
