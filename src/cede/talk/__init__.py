"""The host's side of a conversation with an application that can save itself."""
