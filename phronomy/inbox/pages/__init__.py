"""The pages of the inbox, rendered by the server."""
