"""The SQL stores: the statements they share, and the store that is made of them."""
