"""All that changes the model's weights or posteriors."""
