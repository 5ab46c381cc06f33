"""All that changes the network's weights."""
