"""What no machine of a kind can do with fewer bits."""
