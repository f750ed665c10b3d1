"""The formats of providers: what is sent for a conversation, and how replies, whole and streamed, are read."""
