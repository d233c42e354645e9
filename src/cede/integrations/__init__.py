"""Plug-ins for other programs. Each talks to a cede server by the client, over HTTP only."""
