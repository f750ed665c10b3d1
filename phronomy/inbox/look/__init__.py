"""The look of an inbox: the files that pages refer to, and the logo and the colour of a company among them."""
