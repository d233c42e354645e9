"""What people would use instead of cede, doing the same work in the same run on the same machine.

One module for each peer, all with the interface of `peer.py`. `make bench-peers` installs what it
can, measures, and writes the table of docs/performance.md.
"""
