"""encodeonce: run a transformer's lower part once, keep what comes out, train and serve something small on top.

The names below are the front door; each is imported when it is first used, so that `import encodeonce` costs nothing.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Aggregate": "methods.aggregate",
    "Document": "types",
    "EncodeOnceError": "errors",
    "Finetune": "methods.finetune",
    "Predictor": "serve.predictor",
    "Pretrained": "encoders.pretrained",
    "Settings": "train.settings",
    "Spec": "types",
    "Store": "store",
    "Tuning": "methods.finetune",
    "Variant": "methods.aggregate",
    "evaluate": "train.evaluate",
    "fit": "train.fit",
    "load_run": "serve.bundle:load",
    "named": "tasks",
    "read": "corpus",
    "save_run": "serve.bundle:save",
    "write": "corpus",
}

__all__ = [
    "Aggregate",
    "Document",
    "EncodeOnceError",
    "Finetune",
    "Predictor",
    "Pretrained",
    "Settings",
    "Spec",
    "Store",
    "Tuning",
    "Variant",
    "__version__",
    "evaluate",
    "fit",
    "load_run",
    "named",
    "read",
    "save_run",
    "write",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'encodeonce' has no {name!r}. There is: {', '.join(__all__)}.")
    module, _, attribute = home.partition(":")
    value = getattr(importlib.import_module(f"encodeonce.{module}"), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
