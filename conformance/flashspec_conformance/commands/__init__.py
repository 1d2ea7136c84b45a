"""The commands of the suite itself; each module has ``add_parser`` and ``run``."""
