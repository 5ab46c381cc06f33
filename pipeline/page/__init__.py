"""The scorecard and the page, combined from all systems."""
