"""The versions of commpool.h whose headers are kept here, a folder each."""

KEPT_VERSIONS = [
    "0.1",
    "0.2",
    "0.3",
    "0.4",
]
