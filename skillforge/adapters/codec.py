"""Frames of zstd, and the dictionaries that make small ones smaller.

A frame names its dictionary by id; 0 is none. A dictionary of other things makes frames larger than
none at all does. So what suits is found by trying: one blob of each batch, by each dictionary.

Dictionaries are trained by zstd's fast cover with one size of segment. zstd can search for that
size; but this takes some four times as long, goes by the order of the sample (it learns from the
first three quarters and compares on the last), and gains at most some percent on agent traces and
skills.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

LEVEL, DICTIONARY = 3, 32_768
"""Of compression; bytes of a dictionary."""

SEGMENT, COUNTED, COUNTERS = 1024, 8, 17
"""Fast cover: bytes of a segment, bytes of what is counted in it, log2 of the counters."""

WORTH = 0.9
"""What a new dictionary must come to, at most, against the best of those of before."""

RECENT, PROBE = 8, 16_384
"""Dictionaries that still compress; bytes of a blob by which they are compared."""


def train(texts: Sequence[bytes], known: Sequence[bytes]) -> bytes | None:
    """Return a dictionary that does better than known ones on what is like a sample.

    A quarter of the sample is held out to compare on.

    Args:
        texts: The sample, in random order.
        known: Dictionaries; to have none is compared with as well.

    Returns:
        The dictionary; None if the sample is too small or a new one would not be worth it.
    """
    import zstandard

    held_out = texts[::4]
    if not any(held_out):
        return None
    try:
        trained = zstandard.train_dictionary(
            DICTIONARY,
            [text for at, text in enumerate(texts) if at % 4],
            k=SEGMENT,
            d=COUNTED,
            f=COUNTERS,
            split_point=1.0,
        ).as_bytes()
    except zstandard.ZstdError:
        return None
    size, *others = (
        compressor.multi_compress_to_buffer(held_out).size()  # in one call, so that others run
        for compressor in map(_compressor, (trained, None, *known))
    )
    return trained if size < WORTH * min(others) else None


def _compressor(dictionary: bytes | None) -> Any:
    """Return a compressor that digests its dictionary once, not in each call."""
    import zstandard

    if dictionary is None:
        return zstandard.ZstdCompressor(level=LEVEL)
    known = zstandard.ZstdCompressionDict(dictionary)
    known.precompute_compress(level=LEVEL)
    return zstandard.ZstdCompressor(level=LEVEL, dict_data=known)


def dictionary_id(dictionary: bytes) -> int:
    """Return the id by which frames name a dictionary."""
    import zstandard

    return int(zstandard.ZstdCompressionDict(dictionary).dict_id())


class Codec:
    """Compresses by the one of some dictionaries that suits; decompresses by whichever was used.

    One thread at a time may compress; any number may decompress.
    """

    def __init__(self, dictionaries: Sequence[bytes]) -> None:
        """Take the dictionaries, as `train` returned them, the newest last."""
        import zstandard

        self._zstd = zstandard
        self.recent = tuple(dictionaries[-RECENT:])
        """Those that compress."""
        self._compressors = [*map(_compressor, (None, *self.recent))]
        self._decompressors = {0: zstandard.ZstdDecompressor()}
        for known in map(zstandard.ZstdCompressionDict, dictionaries):
            self._decompressors[known.dict_id()] = zstandard.ZstdDecompressor(dict_data=known)
        self._reading = Lock()  # two threads in one decompressor read each other's bytes

    def compress(self, blobs: Sequence[bytes]) -> list[bytes]:
        """Return the frames of blobs that belong together, by what suits the largest of them.

        They are made in one call, during which other threads run.
        """
        probe = max(blobs, key=len, default=b"")[:PROBE]
        best = min(self._compressors, key=lambda compressor: len(compressor.compress(probe)))
        if not probe:
            return [bytes(best.compress(blob)) for blob in blobs]  # the call below refuses these
        frames = best.multi_compress_to_buffer([*blobs])
        return [frames[i].tobytes() for i in range(len(frames))]

    def knows(self, frame: bytes) -> bool:
        """Return whether it has what a frame was made with."""
        try:
            return self._zstd.get_frame_parameters(frame).dict_id in self._decompressors
        except self._zstd.ZstdError:
            return False

    def decompress(self, frame: bytes) -> bytes:
        """Return the data of a frame.

        Raises:
            ValueError: It is no frame, or it is damaged, or its dictionary is not known.
        """
        try:
            named = self._zstd.get_frame_parameters(frame).dict_id
            with self._reading:
                return bytes(self._decompressors[named].decompress(frame))
        except (self._zstd.ZstdError, TypeError) as error:
            raise ValueError(str(error)) from error
        except KeyError as error:
            raise ValueError(f"its dictionary {error} is not in the ledger") from error
