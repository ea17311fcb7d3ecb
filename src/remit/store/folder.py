"""The project's own folder, by the name it had here."""

from remit.system.own_folder import make_folder

__all__ = ["make_folder"]
