"""A client's secret key: 256 random bits in a file of their own, and generators that only the key can make again.

    key = SecretKey.open(Path("~/.config/mjp/client.key"))     made on first use, for its owner's eyes only
    plan = model.sample_plan(images, key.generator("plan", step))

A seed is no secret: it is in config files and logs, and a torch generator on the CPU uses only 32 bits of it. Whoever
sees the mask of a jigsaw, which is public, can try all of these and then knows the order of the masked patches. So a
generator is filled here with all the 19,968 bits that it takes, by SHAKE-256 from the key and a purpose.
"""

import hashlib
import os
import secrets
from pathlib import Path

import torch

from mjp.common.errors import InputError
from mjp.common.files import open_regular

KEY_BYTES = 32
MAX_FILE_BYTES = 1000
FOR_OTHERS = 0o077  # bits of a file's mode that let anybody but its owner in
# a CPU generator's state: seed, counters, then the 624 words of the Mersenne Twister, each in 8 bytes
WORDS = 624
FIRST_WORD = 3

Purpose = str | int | bytes


class SecretKey:
    """256 random bits; printing or pickling one does not show them."""

    def __init__(self, content: bytes) -> None:
        if len(content) != KEY_BYTES:
            raise InputError(f"a secret key has {KEY_BYTES} bytes, not {len(content)}")
        self._content = content

    def __repr__(self) -> str:
        return "SecretKey(hidden)"

    def __reduce__(self) -> str:
        raise TypeError("a secret key stays in its process: open its file where it is needed")

    @classmethod
    def open(cls, path: Path) -> "SecretKey":
        """The key in a file; a missing file is made, with mode 0600, from the system's random numbers."""
        path = path.expanduser()
        _create(path)
        try:
            with open_regular(path) as file:
                if os.fstat(file.fileno()).st_mode & FOR_OTHERS:
                    raise InputError(f"others can read the secret key {path}: run chmod 600 on it, or make a new one")
                text = file.read(MAX_FILE_BYTES)
        except OSError as error:
            raise InputError(f"the secret key {path} cannot be read: {error.strerror}") from error
        try:
            return cls(bytes.fromhex(text.decode("ascii")))
        except (ValueError, InputError) as error:
            raise InputError(f"{path} does not hold a secret key of {2 * KEY_BYTES} hexadecimal digits") from error

    @classmethod
    def simulated(cls, seed: int) -> "SecretKey":
        """The key of a client that is simulated, for results that come out the same again; a real one has a file."""
        return cls(hashlib.sha256(f"simulated client {seed}".encode()).digest())

    def generator(self, *purpose: Purpose) -> torch.Generator:
        """A CPU generator for one purpose, such as ("plan", 17); the same one every time."""
        words = torch.frombuffer(bytearray(self._stream(4 * WORDS, *purpose)), dtype=torch.int32)
        generator = torch.Generator().manual_seed(0)
        state = generator.get_state().view(torch.int64)
        state[FIRST_WORD : FIRST_WORD + WORDS] = words.long() & 0xFFFFFFFF
        generator.set_state(state.view(torch.uint8))
        return generator

    @property
    def check_value(self) -> str:
        """Tells keys apart, and says nothing else about them: a checkpoint may hold it."""
        return self._stream(8, "check value").hex()

    def _stream(self, count: int, *purpose: Purpose) -> bytes:
        """Pseudorandom bytes of the key for a purpose; every part has its kind and length before it."""
        sponge = hashlib.shake_256(b"mjp secret key 1" + self._content)
        for part in purpose:
            content = part if isinstance(part, bytes) else str(part).encode()
            sponge.update(f"{type(part).__name__} {len(content)} ".encode() + content)
        return sponge.digest(count)


def _create(path: Path) -> None:
    """A new key, unless there is a file; of two processes that create it at once, both use the first one's.

    The name appears with the whole key behind it, and no mode but 0600 ever.
    """
    if path.exists():
        return
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(secrets.token_hex(KEY_BYTES) + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, path)  # fails if the file is there by now
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
    except OSError as error:
        raise InputError(f"the secret key {path} cannot be made: {error.strerror}") from error
