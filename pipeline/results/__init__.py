"""Defines, writes and reads results, and reads the documents' claims, which results answer."""
