"""Databases of many days, made by loading; what they cost after retention."""
