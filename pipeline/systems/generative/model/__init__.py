"""The model and everything else that affects its weights or posteriors."""
