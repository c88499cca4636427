"""Writes wire.json: messages made from the description of the format alone, without dpcore.

Codes become one big integer, lengths are written by int.to_bytes, and the CRC is computed bit by
bit. Run it as ``python tests/vectors/make_wire.py``.
"""

import json
from pathlib import Path

PATH = Path(__file__).with_name("wire.json")
STEP = 40503  # odd, so that multiples of it run through all codes


def crc_32(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0xEDB88320 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def message(codes: list[int], kind: int, n_bits: int, parameters: bytes) -> bytes:
    total = sum(code << i * n_bits for i, code in enumerate(codes))
    payload = total.to_bytes(-(-len(codes) * n_bits // 8), "little")
    body = (
        b"dpcr"
        + bytes([1, kind, n_bits, 0])
        + len(codes).to_bytes(8, "little")
        + len(payload).to_bytes(8, "little")
        + len(parameters).to_bytes(4, "little")
        + parameters
        + payload
    )
    return body + crc_32(body).to_bytes(4, "little")


def vectors() -> list[dict[str, object]]:
    assert crc_32(b"123456789") == 0xCBF43926  # the check value that catalogues of CRCs give
    made = []
    for n_bits in range(1, 17):
        for n in (0, 1, 7, 8, 9, 29):
            codes = [(i + 1) * STEP % (1 << n_bits) for i in range(n)]
            if n == 7:
                codes = [(1 << n_bits) - 1] * n
            kind = 17 * n_bits - 17
            parameters = bytes(range(n % 4))
            made.append(
                {
                    "kind": kind,
                    "n_bits": n_bits,
                    "codes": codes,
                    "parameters": parameters.hex(),
                    "message": message(codes, kind, n_bits, parameters).hex(),
                }
            )
    return made


def text() -> str:
    lines = ",\n".join(json.dumps(vector) for vector in vectors())
    return f"[\n{lines}\n]\n"


if __name__ == "__main__":
    PATH.write_text(text())
