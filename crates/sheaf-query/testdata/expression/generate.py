"""Makes the tables whose answers another program can give.

    python3 generate.py digests > digests.txt
    python3 generate.py json    > json.txt
    python3 generate.py vectors > vectors.txt

The oracles are Python's hashlib, json, struct and math; xxh64 is the package xxhash.
"""

import base64
import hashlib
import json
import math
import random
import struct
import sys


def shell(value, answer=False):
    """A value as the tables write it; answers show binary data in hexadecimal and names bare."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if -(2**31) <= value < 2**31 else f"NumberLong({value})"
    if isinstance(value, float):
        return shell_double(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bytes):
        return f"BinData(0, {value.hex().upper()})" if answer else binary(0, value)
    if isinstance(value, list):
        return "[ " + ", ".join(shell(v, answer) for v in value) + " ]" if value else "[]"
    if isinstance(value, dict):
        shown = {(k or '""') if answer else name(k): shell(v, answer) for k, v in value.items()}
        fields = ", ".join(f"{k}: {v}" for k, v in shown.items())
        return "{ " + fields + " }" if value else "{}"
    raise TypeError(value)


def name(key):
    plain = key and (key[0].isalpha() or key[0] in "_$") and all(c.isalnum() or c in "_$" for c in key)
    return key if plain and key.isascii() else json.dumps(key, ensure_ascii=False)


def shell_double(value):
    text = repr(value)
    if "e" in text:
        digits, exponent = text.split("e")
        return f"{digits}e{int(exponent):+d}" if int(exponent) > 0 else f"{digits}e{int(exponent)}"
    return text


def binary(subtype, data):
    return f'BinData({subtype}, "{base64.b64encode(data).decode()}")'


def digests():
    import xxhash

    print("# The answers are hashlib's and xxhash's.")
    texts = ["", "a", "abc", "report.pdf", "Grüße", "\U0001f600", "x" * 31, "x" * 32, "x" * 33]
    texts += ["0123456789" * n for n in (1, 3, 4, 7, 13)]
    data = [b"", b"\x00", bytes(range(16)), bytes(range(64)), bytes(range(255, 150, -1))]
    algorithms = {
        "md5": lambda b: hashlib.md5(b).digest(),
        "sha256": lambda b: hashlib.sha256(b).digest(),
        "xxh64": lambda b: xxhash.xxh64(b, seed=0).digest(),
    }
    for algorithm, digest in algorithms.items():
        for operator, show in (("$hash", lambda b: shell(b, True)), ("$hexHash", lambda b: shell(b.hex().upper()))):
            print(f'expr {{{operator}: {{input: "$a", algorithm: "{algorithm}"}}}}')
            for text in texts:
                print(f"  {{a: {shell(text)}}} => {show(digest(text.encode()))}")
            for bytes_ in data:
                print(f"  {{a: {shell(bytes_)}}} => {show(digest(bytes_))}")
            print("  {a: null} => null")
            print("  {} => null")


def json_texts():
    print("# The answers are those of Python's json, integers beyond long as doubles.")
    values = [
        [], {}, [1, 2, 3], ["a", "b", "c"], {"a": 1, "b": 2}, {"foo": None}, {"foo": False},
        {"__proto__": {"foo": None}}, {"foo": "NaN"}, [{"$oid": "507f1f77bcf86cd799439011"}],
        {"d": {"$date": "2024-01-01T00:00:00Z"}}, [[], [[]], {}], [True, False, None],
        [0, -0.0, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, -(2**63)],
        [1.5, -2.25, 1e3, 1e-7, 1.7976931348623157e308, 5e-324], {"": 1}, {"a.b": 1, "$c": 2},
        ["é", "\U0001f600", "\u2028", "tab\t", "quote\"", "back\\slash", "/"],
        {"deep": {"er": {"and": [{"deeper": [1, [2, [3]]]}]}}},
    ]
    spellings = [
        lambda v: json.dumps(v), lambda v: json.dumps(v, ensure_ascii=False),
        lambda v: json.dumps(v, indent=2), lambda v: " \n\t" + json.dumps(v, separators=(",", ":")) + "\r\n ",
    ]
    tables = {"$toArray": list, "$toObject": dict}
    for operator, kind in tables.items():
        print(f'expr {{{operator}: "$a"}}')
        for value in values:
            if not isinstance(value, kind):
                continue
            for spelling in dict.fromkeys(spell(value) for spell in spellings):
                print(f"  {{a: {shell(spelling)}}} => {shell(json.loads(spelling), True)}")
        print("  {a: null} => null")
        print("  {} => null")
    print('expr {$toObject: "$a"}')
    for text in ['{"a": 1, "b": 2, "a": 3}', '{"name": "fo\\u0000o"}', '{"a": 1E2, "b": 1e+2, "c": 100e-2, "d": 1.0}']:
        print(f"  {{a: {shell(text)}}} => {shell(json.loads(text), True)}")
    print("# What is no JSON: an error everywhere, onError where it is given.")
    wrong = [
        "", " ", "123", '"a"', "null", "true", "[1,]", "[,1]", "[1 2]", "[1", "[1]]", "[01]", "[1.]", "[.5]", "[+1]", "[-]",
        "[1e]", "[NaN]", "[Infinity]", "[undefined]", "['a']", '["a]', '["\\x"]', '["\\u12"]', '["\\ud800"]', '["\\udc00x"]',
        '["\\ud800\\u0041"]', "[// c\n1]", "[/* c */]", "[tru]", "{", '{"a"}', '{"a":}', '{"a":1,}', "{a:1}", '{"a":1 "b":2}',
        '{"nam\\u0000e": 1}', "[1e400]", "[\"a\tb\"]", "[" * 200,
    ]
    for to in ("array", "object"):
        print(f'expr {{$convert: {{input: "$a", to: "{to}", onError: "wrong"}}}}')
        for text in wrong + (["{}"] if to == "array" else ["[]"]):
            print(f'  {{a: {shell(text)}}} => "wrong"')


FLOAT32 = b"\x27\x00"


def packed(values):
    return b"\x03\x00" + struct.pack(f"{len(values)}b", *values)


def vectors():
    print("# The answers are computed with math.fsum; int8 and float32 vectors hold the same numbers as the arrays.")
    rng = random.Random(5)
    pairs = [([1, 2, 3], [1, 2, 3]), ([1, 2, 3], [-1, -2, -3]), ([1, 0], [0, 1]), ([0, 0], [1, 2]), ([3, 4], [0, 0]), ([], [])]
    # Small integers: sums are exact in any order.
    pairs += [([rng.randrange(-100, 100) for _ in range(n)] , [rng.randrange(-100, 100) for _ in range(n)]) for n in (1, 2, 5, 17)]
    dot = lambda a, b: float(math.fsum(x * y for x, y in zip(a, b)))
    distance = lambda a, b: math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(a, b)))

    def cosine(a, b):
        lengths = math.sqrt(dot(a, a)) * math.sqrt(dot(b, b))
        return max(-1.0, min(1.0, dot(a, b) / lengths)) if lengths else 0.0

    measures = {
        "$similarityDotProduct": (dot, lambda m: (1 + m) / 2),
        "$similarityEuclidean": (distance, lambda m: 1 / (1 + m)),
        "$similarityCosine": (cosine, lambda m: (1 + m) / 2),
    }
    writings = [
        shell,
        lambda v: "[ " + ", ".join(shell(float(x)) for x in v) + " ]" if v else "[]",
        lambda v: binary(9, packed(v)),
        lambda v: binary(9, FLOAT32 + struct.pack(f"<{len(v)}f", *v)),
    ]
    for operator, (measure, score) in measures.items():
        forms = [
            (f'["$a", "$b"]', lambda m: m),
            (f'{{vectors: ["$a", "$b"]}}', lambda m: m),
            (f'{{vectors: ["$a", "$b"], score: true}}', score),
        ]
        for form, show in forms:
            print(f"expr {{{operator}: {form}}}")
            for a, b in pairs:
                for write, other in zip(writings, writings[1:] + writings[:1]):
                    print(f"  {{a: {write(a)}, b: {other(b)}}} => {shell(show(measure(a, b)))}")
    print('expr {$toArray: "$a"}')
    for values in ([], [1], [-128, 127, 0], list(range(-5, 6))):
        print(f"  {{a: {binary(9, packed(values))}}} => {shell(values)}")
    for values in ([], [1.5], [-0.0, 0.1, 3.4028234663852886e38]):
        stored = struct.pack(f"<{len(values)}f", *values)
        read = [x for (x,) in struct.iter_unpack("<f", stored)]
        print(f"  {{a: {binary(9, FLOAT32 + stored)}}} => {shell(read)}")
    for bits in ("", "1", "10110", "01111111", "000000001", "1111000011110000"):
        padding = -len(bits) % 8
        stored = int(bits + "0" * padding or "0", 2).to_bytes((len(bits) + padding) // 8, "big")
        print(f"  {{a: {binary(9, bytes([0x10, padding]) + stored)}}} => {shell([bit == '1' for bit in bits])}")


{"digests": digests, "json": json_texts, "vectors": vectors}[sys.argv[1]]()
