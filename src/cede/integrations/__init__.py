"""Plug-ins for programs of others. Each talks to a cede server by the client, over HTTP only."""
