"""encodeonce: run a transformer's lower part once, keep what comes out, train and serve something small on top.

The names below are the front door; each is imported when it is first used, so that `import encodeonce` costs nothing.
So are the rooms (`encodeonce.corpus`), which the documentation calls by their whole names.
"""

import importlib
import importlib.util
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "Aggregate": "methods.aggregate",
    "Answer": "types",
    "Answerer": "serve.answerer",
    "Document": "types",
    "EncodeOnceError": "errors",
    "FewShot": "integrations.few_shot",
    "Finetune": "methods.finetune",
    "Lumen": "methods.lumen",
    "Memory": "memory",
    "Passage": "types",
    "Predictor": "serve.predictor",
    "Pretrained": "encoders.pretrained",
    "Question": "types",
    "ReaderRun": "serve.reader_run",
    "Settings": "train.settings",
    "Spec": "types",
    "Store": "store",
    "Tuning": "methods.finetune",
    "Variant": "methods.aggregate",
    "evaluate": "train.evaluate",
    "fit": "train.fit",
    "load_reader": "serve.reader_run",
    "load_run": "serve.bundle:load",
    "named": "tasks",
    "read": "corpus",
    "read_passages": "corpus.passages",
    "read_questions": "corpus.questions",
    "save_reader": "serve.reader_run",
    "save_run": "serve.bundle:save",
    "windows": "corpus.windows",
    "write": "corpus",
    "write_passages": "corpus.passages",
    "write_questions": "corpus.questions",
}

__all__ = [
    "Aggregate",
    "Answer",
    "Answerer",
    "Document",
    "EncodeOnceError",
    "FewShot",
    "Finetune",
    "Lumen",
    "Memory",
    "Passage",
    "Predictor",
    "Pretrained",
    "Question",
    "ReaderRun",
    "Settings",
    "Spec",
    "Store",
    "Tuning",
    "Variant",
    "__version__",
    "evaluate",
    "fit",
    "load_reader",
    "load_run",
    "named",
    "read",
    "read_passages",
    "read_questions",
    "save_reader",
    "save_run",
    "windows",
    "write",
    "write_passages",
    "write_questions",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None and not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")
    if home is None:
        raise AttributeError(f"module 'encodeonce' has no {name!r}. There is: {', '.join(__all__)}.")
    module, _, attribute = home.partition(":")
    value = getattr(importlib.import_module(f"encodeonce.{module}"), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
