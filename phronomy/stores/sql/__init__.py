"""What the SQL stores share: statements, and the store that is made of them."""
