"""The scorecard and the page, put together from all systems."""
