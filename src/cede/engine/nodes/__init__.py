"""The nodes of a pool: free capacity on them, their owners, and the placement of tasks."""
