"""A tracking server for a team, on one machine: MLflow with users and passwords, and PostgreSQL behind it.

`python -m pipeline server start FOLDER` makes it and starts it. Everything that it keeps is in that folder.
"""
