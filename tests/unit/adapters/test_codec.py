"""Frames, what they are compressed by, and when a new dictionary is worth having."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from skillforge.adapters.codec import RECENT, Codec, dictionary_id, train


def texts(kind, count=300):
    """Return texts of one kind: they share sentences, and differ in numbers."""
    rng = random.Random(kind)
    words = ["".join(rng.choices("aeioubcdfgklmnprst", k=6)) for _ in range(200)]
    said = [" ".join(rng.choices(words, k=12)) for _ in range(40)]
    return [" ".join([*rng.choices(said, k=4), f"{kind} {at}"]).encode() for at in range(count)]


def size(codec, blobs):
    """Return the bytes of their frames."""
    return sum(map(len, codec.compress(blobs)))


@pytest.mark.parametrize("blobs", [[], [b""], [b"", b"a"], [b"one", b"two" * 50_000], texts("a")])
def test_frames_give_back_what_they_were_made_of(blobs):
    """Also of nothing, and next to nothing; with dictionaries and without."""
    for codec in (Codec([]), Codec([train(texts("a"), [])])):
        frames = codec.compress(blobs)
        assert [codec.decompress(frame) for frame in frames] == blobs
        assert all(map(codec.knows, frames))


def test_a_batch_is_compressed_by_what_suits_it():
    """The dictionary of its kind, wherever it stands among others; for what has none, no one's."""
    kinds = {kind: train(texts(kind), []) for kind in "abc"}
    codec = Codec([*kinds.values()])
    for kind, dictionary in kinds.items():
        assert size(codec, texts(kind)) == size(Codec([dictionary]), texts(kind))
        assert size(codec, texts(kind)) < 0.5 * size(Codec([]), texts(kind))

    assert size(codec, texts("d")) <= size(Codec([]), texts("d"))


def test_old_dictionaries_only_decompress():
    """As many as are recent compress; all of them can be read by."""
    old = train(texts("old"), [])
    frames = Codec([old]).compress(texts("old"))
    codec = Codec([old, *(train(texts(str(n)), []) for n in range(RECENT))])

    assert [codec.decompress(frame) for frame in frames] == texts("old")
    assert len(codec.recent) == RECENT
    assert size(codec, texts("old")) > 2 * sum(map(len, frames))


def test_a_dictionary_is_trained_only_where_it_is_worth_it():
    """It must save a tenth of what none, and each one of those of before, would come to."""
    one, other = train(texts("a"), []), train(texts("b"), [])

    assert one is not None
    assert train(texts("a", count=900)[300:], [one]) is None
    assert train(texts("a", count=900)[300:], [one, other]) is None
    assert train(texts("a", count=900)[300:], [other]) is not None
    assert train([random.Random(at).randbytes(500) for at in range(300)], []) is None


@pytest.mark.parametrize("few", [[], [b""], [b"a"], texts("a", count=3)])
def test_too_little_to_train_on(few):
    """A sample of next to nothing gives no dictionary and no error."""
    assert train(few, []) is None


def test_a_dictionary_depends_on_nothing_but_the_sample():
    """The same sample gives the same one, under the id that frames then name."""
    dictionary = train(texts("a"), [])

    assert train(texts("a"), []) == dictionary
    (frame,) = Codec([dictionary]).compress(texts("a", count=1))
    with pytest.raises(ValueError, match=f"its dictionary {dictionary_id(dictionary)} is not"):
        Codec([]).decompress(frame)
    assert not Codec([]).knows(frame)


@pytest.mark.parametrize("frame", [b"", b"\0", b"no frame at all", None])
def test_what_is_no_frame(frame):
    """Bytes that zstd did not write are an error, not data; so are those cut short."""
    with pytest.raises(ValueError):
        Codec([]).decompress(frame)
    (whole,) = Codec([]).compress([b"something longer than its frame" * 9])
    with pytest.raises(ValueError):
        Codec([]).decompress(whole[:-5])


def test_two_threads_read_at_once():
    """Each gets its own bytes: a dictionary is trained on old frames while others are read."""
    draw = random.Random(0)
    blobs = [draw.randbytes(2_000) * 400 for _ in range(8)]
    codec = Codec([])
    frames = codec.compress(blobs)

    def are_right(_):
        pairs = [*zip(frames, blobs, strict=True)] * 20
        return all(codec.decompress(frame) == blob for frame, blob in pairs)

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(are_right, range(4)))
