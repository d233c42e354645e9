"""Who outranks whom, what a share covers, and what stopping somebody costs."""
