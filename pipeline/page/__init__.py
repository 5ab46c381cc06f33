"""The scorecard and the page, which combine the results of all systems."""
