"""Every error the library raises on purpose, drawn as one tree.

EncodeOnceError
├── ConfigError            a setting, a flag or an argument is wrong
├── DataError              a file's content is wrong; the message names file and line
├── EncoderError           a model folder, a tokenizer or a family cannot be used
├── StoreError             a store cannot be opened, read or written
│   ├── SpecMismatch       the store was made by something else; the message names each difference
│   ├── CorruptStore       a file was cut, changed or lost; the message names it
│   ├── NotStored          an item that was asked for is not in the store
│   ├── NonFinite          an encoder gave inf or NaN (or a value the storage type cannot hold)
│   ├── StoreFull          the size cap or the disk is reached
│   └── TooFewVectors      fewer vectors can be found than neighbours were asked for
├── RunError               a saved run cannot be loaded, resumed or used with this encoder
└── MissingExtra           an optional package is not installed

A message says the value seen, the values allowed, the place and the next step.
"""

__all__ = [
    "ConfigError",
    "CorruptStore",
    "DataError",
    "EncodeOnceError",
    "EncoderError",
    "MissingExtra",
    "NonFinite",
    "NotStored",
    "RunError",
    "SpecMismatch",
    "StoreError",
    "StoreFull",
    "TooFewVectors",
]


class EncodeOnceError(Exception):
    """Base of the family: catch this to catch everything the library refuses on purpose."""


class ConfigError(EncodeOnceError):
    """A setting, a flag or an argument is wrong."""


class DataError(EncodeOnceError):
    """A file's content is wrong; the message names file and line."""


class EncoderError(EncodeOnceError):
    """A model folder, a tokenizer or a family cannot be used."""


class StoreError(EncodeOnceError):
    """A store cannot be opened, read or written."""


class SpecMismatch(StoreError):
    """The store was made by something else; the message names each difference."""


class CorruptStore(StoreError):
    """A file was cut, changed or lost; the message names it."""


class NotStored(StoreError):
    """An item that was asked for is not in the store."""


class NonFinite(StoreError):
    """An encoder gave inf or NaN, or a value the storage type cannot hold; a vector is too long to be compared."""


class StoreFull(StoreError):
    """The size cap or the disk is reached."""


class TooFewVectors(StoreError):
    """Fewer vectors can be found than neighbours were asked for."""


class RunError(EncodeOnceError):
    """A saved run cannot be loaded, resumed or used with this encoder."""


class MissingExtra(EncodeOnceError, ImportError):
    """An optional package is not installed; the message gives the install command."""
