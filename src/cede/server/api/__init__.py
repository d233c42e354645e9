"""The HTTP API: authenticate, bound, parse, permit, act; and the plain page.

No module here decides about compute. A handler turns JSON into one command or one read, and the
answer back into JSON; `server/writer` and `store` do the rest.
"""
