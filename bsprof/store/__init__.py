"""Profiles on disk: where they lie, how they are named, read and written."""

from bsprof.store.data import data_folder
from bsprof.store.files import atomic_write, is_special
from bsprof.store.folder import (
    StoredProfile,
    files,
    find,
    listing,
    matches,
    newest,
    profile_path,
    read,
    slug,
    store_folder,
)
from bsprof.store.profiles import dumps, load, loads, save

__all__ = [
    "StoredProfile",
    "atomic_write",
    "data_folder",
    "dumps",
    "files",
    "find",
    "is_special",
    "listing",
    "load",
    "loads",
    "matches",
    "newest",
    "profile_path",
    "read",
    "save",
    "slug",
    "store_folder",
]
