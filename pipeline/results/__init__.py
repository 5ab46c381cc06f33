"""The form of results, their writing and reading, and the documents' claims that results answer."""
