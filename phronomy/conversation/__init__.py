"""What the model is told: instructions, the history that it is shown, the input, and the type of the answer."""
