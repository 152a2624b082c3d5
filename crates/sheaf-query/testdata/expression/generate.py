"""Makes the tables whose answers another program can give.

    python3 generate.py digests > digests.txt
    python3 generate.py json    > json.txt
    python3 generate.py vectors > vectors.txt
    python3 generate.py pairs   > pairs.txt
    python3 generate.py sets    > sets.txt
    python3 generate.py slices  > slices.txt
    python3 generate.py texts   > texts.txt
    python3 generate.py places  > places.txt
    python3 generate.py bits    > bits.txt
    python3 generate.py truths  > truths.txt
    python3 generate.py objects > objects.txt

The oracles are Python's own: hashlib, json, struct, math, decimal, strings as code points,
bytes, slices, integers without end; the order of values is written down as a list.
xxh64 is the package xxhash.
"""

import base64
import decimal
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
        lengths = math.sqrt(dot(a, a) * dot(b, b))
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


class Long(int):
    """An integer of 64 bits, however small."""


class Text(str):
    """What stands in a table as it is."""


def number(value, answer=False):
    if isinstance(value, Long):
        return f"NumberLong({value})" if answer else f'NumberLong("{value}")'
    return shell(value, answer)


# Values in MongoDB's order; those of one line are equal. Text is what the table's reader understands.
ORDER = [
    ["MinKey"], [""], ["null"], ["NaN", 'NumberDecimal("NaN")'], ["-Infinity", 'NumberDecimal("-Infinity")'],
    ['NumberDecimal("-1E+400")'], ["-1.7976931348623157e308"], ['NumberLong("-9223372036854775808")', "-9223372036854775808.0"],
    ["-2147483648", "-2147483648.0"], ["-1", "-1.0", 'NumberLong("-1")', 'NumberDecimal("-1.00")'], ["-5e-324"],
    ["0", "-0.0", "0.0", 'NumberLong("0")', 'NumberDecimal("-0")', 'NumberDecimal("0E+3")'], ['NumberDecimal("1E-400")'], ["5e-324"],
    ['NumberDecimal("0.1")'], ["0.1"], ["1", 'NumberDecimal("1.0")'], ["9007199254740992.0", 'NumberLong("9007199254740992")'],
    ['NumberLong("9007199254740993")', 'NumberDecimal("9007199254740993")'], ['NumberLong("9223372036854775807")'], ["9223372036854775808.0"],
    ["Infinity", 'NumberDecimal("Infinity")'], ['""'], ['"1"'], ['"B"'], ['"a"'], ['"aa"'], ['"b"'], ['"é"'], ['"😀"'],
    ["{}"], ["{a: 1}", "{a: 1.0}"], ["{a: 1, b: 1}"], ["{a: 2}"], ["{b: 0}"], ['{a: ""}'], ["{a: {}}"], ["[]"], ["[1]", "[1.0]"], ["[1, 0]"], ["[2]"], ["[[]]"],
    ['BinData(0, "")'], ['BinData(0, "AQ==")'], ['BinData(4, "AA==")'], ['BinData(0, "AAA=")'], ['ObjectId("000000000000000000000000")'],
    ['ObjectId("5ab9c3da31c2ab715d421285")'], ["false"], ["true"], ["new Date(-1)"], ["new Date(0)"], ["Timestamp(0, 1)"], ["Timestamp(1, 0)"],
    ["/a/"], ["/a/i"], ["/b/"], ["MaxKey"],
]


def pairs():
    print("# Every pair of a list in MongoDB's order; the empty name is a missing field.")
    print('expr [{$cmp: ["$a", "$b"]}, {$lt: ["$a", "$b"]}, {$lte: ["$a", "$b"]}, {$eq: ["$a", "$b"]}, {$ne: ["$a", "$b"]}, {$gte: ["$a", "$b"]}, {$gt: ["$a", "$b"]}]')
    values = [(rank, text) for rank, texts in enumerate(ORDER) for text in texts]
    for rank, a in values:
        for other, b in values:
            fields = ", ".join(f"{k}: {v}" for k, v in (("a", a), ("b", b)) if v)
            order = (rank > other) - (rank < other)
            answers = [order, order < 0, order <= 0, order == 0, order != 0, order >= 0, order > 0]
            print(f"  {{{fields}}} => {shell(answers)}")


def sets():
    print("# Sets of numbers of mixed types: equal is what compares equal; what stays is what came first.")
    rng = random.Random(7)
    # (class, as written, as shown)
    pool = [(n, w, s) for n in range(4) for w, s in ((f"{n}", f"{n}"), (f"{n}.0", f"{n}.0"), (f'NumberLong("{n}")', f"NumberLong({n})"))]
    pool += [("x", '"x"', '"x"'), ("y", '"y"', '"y"'), ("null", "null", "null"), ("t", "true", "true"), ("f", "false", "false"), ("[0]", "[0]", "[ 0 ]"), ("[0]", "[0.0]", "[ 0.0 ]")]
    false = {0, "null", "f"}
    print('expr [{$size: {$setUnion: ["$a", "$b"]}}, {$size: {$setIntersection: ["$a", "$b"]}}, {$setDifference: ["$a", "$b"]}, {$setIsSubset: ["$a", "$b"]}, {$setEquals: ["$a", "$b"]}, {$allElementsTrue: ["$a"]}, {$anyElementTrue: ["$a"]}, {$in: [{$first: "$b"}, "$a"]}]')
    for _ in range(400):
        few = rng.sample(pool, rng.randrange(2, 9))
        a, b = ([rng.choice(few) for _ in range(rng.randrange(6))] for _ in range(2))
        in_a, in_b = ({c for c, _, _ in v} for v in (a, b))
        rest = {}
        for c, _, shown in a:
            if c not in in_b:
                rest.setdefault(c, shown)
        difference = "[ " + ", ".join(rest.values()) + " ]" if rest else "[]"
        # The first of no elements is missing, and nothing equals that.
        member = bool(b) and b[0][0] in in_a
        answers = [len(in_a | in_b), len(in_a & in_b), Text(difference), in_a <= in_b, in_a == in_b]
        answers += [all(c not in false for c in in_a), any(c not in false for c in in_a), member]
        shown = ", ".join(v if isinstance(v, Text) else shell(v) for v in answers)
        written = ["[" + ", ".join(w for _, w, _ in v) + "]" for v in (a, b)]
        print(f"  {{a: {written[0]}, b: {written[1]}}} => [ {shown} ]")


def slices():
    print("# Parts of arrays, as Python cuts them.")
    rng = random.Random(11)

    def cut(array, at, count=None):
        if count is None:
            return array[:at] if at >= 0 else array[max(len(array) + at, 0):]
        start = at if at >= 0 else max(len(array) + at, 0)
        return array[start:start + count]

    print('expr [{$slice: ["$a", "$n"]}, {$slice: ["$a", "$p", "$c"]}, {$firstN: {n: "$c", input: "$a"}}, {$lastN: {n: "$c", input: "$a"}}, {$reverseArray: "$a"}, {$concatArrays: ["$a", ["$n"], "$a"]}]')
    for _ in range(150):
        array = [rng.randrange(10) for _ in range(rng.randrange(7))]
        n, p, c = rng.randrange(-8, 9), rng.randrange(-8, 9), rng.randrange(1, 9)
        answers = [cut(array, n), cut(array, p, c), array[:c], array[-c:], array[::-1], array + [n] + array]
        print(f"  {{a: {shell(array)}, n: {n}, p: {p}, c: {c}}} => {shell(answers)}")
    print('expr [{$ifNull: [{$arrayElemAt: ["$a", "$n"]}, "none"]}, {$indexOfArray: ["$a", "$v"]}, {$indexOfArray: ["$a", "$v", "$s"]}, {$indexOfArray: ["$a", "$v", "$s", "$e"]}, {$in: ["$v", "$a"]}, {$size: "$a"}]')
    for _ in range(150):
        array = [rng.randrange(4) for _ in range(rng.randrange(7))]
        n, v, s, e = rng.randrange(-8, 9), rng.randrange(5), rng.randrange(9), rng.randrange(9)
        find = lambda start, end: next((i for i in range(start, min(end, len(array))) if array[i] == v), -1)
        element = array[n] if -len(array) <= n < len(array) else "none"
        answers = [element, find(0, 99), find(s, 99), find(s, e), v in array, len(array)]
        print(f"  {{a: {shell(array)}, n: {n}, v: {v}, s: {s}, e: {e}}} => {shell(answers)}")
    print('expr {$range: ["$s", "$e", "$n"]}')
    for start in (-7, 0, 3, 2147483640):
        for end in (-9, 0, 4, 2147483647):
            for step in (-2147483648, -3, -1, 1, 2, 5, 2147483647):
                if abs((end - start) // step) < 30:
                    print(f"  {{s: {start}, e: {end}, n: {step}}} => {shell(list(range(start, end, step)))}")
    print('expr [{$zip: {inputs: ["$a", "$b"]}}, {$zip: {inputs: ["$a", "$b"], useLongestLength: true, defaults: ["p", "q"]}}]')
    for _ in range(60):
        a, b = ([rng.randrange(9) for _ in range(rng.randrange(5))] for _ in range(2))
        longest = [[a[i] if i < len(a) else "p", b[i] if i < len(b) else "q"] for i in range(max(len(a), len(b)))]
        print(f"  {{a: {shell(a)}, b: {shell(b)}}} => {shell([[list(x) for x in zip(a, b)], longest])}")


def texts():
    print("# Strings: code points are Python's, bytes those of UTF-8; case is ASCII's.")
    rng = random.Random(13)
    letters = ["a", "b", "B", "c", "-", " ", "é", "ß", "😀", "e\u0301".encode().decode("unicode_escape"), "\u0000".encode().decode("unicode_escape"), "中"]
    word = lambda n: "".join(rng.choice(letters) for _ in range(rng.randrange(n)))
    ascii_case = lambda text, change: "".join(change(c) if c.isascii() else c for c in text)

    def substr_bytes(text, start, count):
        data = text.encode()
        middle = lambda at: at < len(data) and data[at] & 0xC0 == 0x80
        if start >= len(data):
            return Text('""')
        if middle(start):
            return "28656 $substrBytes must not start in the middle of a UTF-8 character"
        end = len(data) if count < 0 else min(start + count, len(data))
        if middle(end):
            return "28657 $substrBytes must not end in the middle of a UTF-8 character"
        return Text(shell(data[start:end].decode()))

    print('expr [{$strLenCP: "$a"}, {$strLenBytes: "$a"}, {$toUpper: "$a"}, {$toLower: "$a"}, {$substrCP: ["$a", "$s", "$n"]}, {$concat: ["$a", "|", "$b"]}, {$binarySize: "$a"}, {$strcasecmp: ["$a", "$b"]}]')
    for _ in range(200):
        a, b, s, n = word(8), word(4), rng.randrange(9), rng.randrange(6)
        up = lambda text: ascii_case(text, str.upper).encode()
        answers = [len(a), len(a.encode()), ascii_case(a, str.upper), ascii_case(a, str.lower), a[s:s + n], a + "|" + b, len(a.encode())]
        answers.append((up(a) > up(b)) - (up(a) < up(b)))
        print(f"  {{a: {shell(a)}, b: {shell(b)}, s: {s}, n: {n}}} => {shell(answers)}")
    print('expr {$substrBytes: ["$a", "$s", "$n"]}')
    for _ in range(150):
        a, s, n = word(6), rng.randrange(12), rng.randrange(-1, 9)
        print(f"  {{a: {shell(a)}, s: {s}, n: {n}}} => {substr_bytes(a, s, n)}")
    print('expr [{$split: ["$a", "$f"]}, {$replaceOne: {input: "$a", find: "$f", replacement: "$r"}}, {$replaceAll: {input: "$a", find: "$f", replacement: "$r"}}, {$indexOfCP: ["$a", "$f"]}, {$indexOfBytes: ["$a", "$f"]}]')
    for _ in range(200):
        a, f, r = word(10), word(2) or "b", word(3)
        answers = [a.split(f), a.replace(f, r, 1), a.replace(f, r), a.find(f), a.encode().find(f.encode())]
        print(f"  {{a: {shell(a)}, f: {shell(f)}, r: {shell(r)}}} => {shell(answers)}")
    print('expr [{$trim: {input: "$a", chars: "$c"}}, {$ltrim: {input: "$a", chars: "$c"}}, {$rtrim: {input: "$a", chars: "$c"}}]')
    for _ in range(100):
        a, c = word(8), word(4)
        answers = [a.strip(c), a.lstrip(c), a.rstrip(c)] if c else [a, a, a]
        print(f"  {{a: {shell(a)}, c: {shell(c)}}} => {shell(answers)}")
    print('expr [{$indexOfCP: ["$a", "$f", "$s", "$e"]}, {$indexOfBytes: ["$a", "$f", "$t", "$u"]}]')
    for _ in range(150):
        a, f, s, e = word(8), word(2), rng.randrange(8), rng.randrange(9)
        data, wanted = a.encode(), f.encode()
        # Places of bytes are taken between characters.
        t, u = len(a[:s].encode()), len(a[:e].encode())

        def find(text, part, start, end):
            if start > len(text) or start > end:
                return -1
            return text.find(part, start, end)

        def find_begin(text, part, start, end):
            """Only the beginning must be within the bounds, and before the end of the text."""
            if not text and not part and not start:
                return 0
            found = text.find(part, start)
            return found if found < min(end, len(text)) else -1

        answers = [find_begin(a, f, s, e), find(data, wanted, t, u)]
        print(f"  {{a: {shell(a)}, f: {shell(f)}, s: {s}, e: {e}, t: {t}, u: {u}}} => {shell(answers)}")


def places():
    print("# Rounding to a place: Python's decimal, half to even; $trunc toward zero.")
    decimal.getcontext().prec = 34
    quantum = lambda place: decimal.Decimal(1).scaleb(-place)

    def at(value, place, how):
        return decimal.getcontext().create_decimal(value).quantize(quantum(place), rounding=how)

    half, down = decimal.ROUND_HALF_EVEN, decimal.ROUND_DOWN
    doubles = [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.125, 0.375, 2.675, 1.005, 19.25, 28.73, 1234.5678, -1234.5678, 0.1, 0.049999, 99.995, 1e15 / 3, -7.85, 4503599627370497.5, 123456789.125]
    print('expr [{$round: ["$a", "$n"]}, {$trunc: ["$a", "$n"]}]')
    for value in doubles:
        for place in range(-5, 8):
            answers = [float(at(value, place, how)) for how in (half, down)]
            print(f"  {{a: {shell(value)}, n: {place}}} => {shell(answers)}")
    integers = [0, 1, 5, 15, 25, 45, 50, 55, -15, -25, 149, 150, 151, 250, 1234, -1250, 2147483647, -2147483648, Long(25), Long(-35), Long(4294967250), Long(9223372036854775000), Long(-9223372036854775000)]
    for value in integers:
        for place in range(-4, 2):
            answers = [int(at(int(value), place, how)) if place < 0 else int(value) for how in (half, down)]
            if any(abs(answer) >= 2**63 for answer in answers):
                continue
            shown = [number(Long(a) if isinstance(value, Long) else a, True) for a in answers]
            print(f"  {{a: {number(value)}, n: {place}}} => [ {', '.join(shown)} ]")
    print('expr [{$ceil: "$a"}, {$floor: "$a"}]')
    for value in doubles + [1e300, -1e300]:
        ceil = math.ceil(value)
        up = -0.0 if ceil == 0 and math.copysign(1, value) < 0 else float(ceil)
        below = -0.0 if value == 0 and math.copysign(1, value) < 0 else float(math.floor(value))
        print(f"  {{a: {shell(value)}}} => {shell([up, below])}")


def bits():
    print("# Two's complement, as Python's integers have it.")
    rng = random.Random(17)
    edges = [0, 1, -1, 2**31 - 1, -(2**31), 0x55555555, Long(0), Long(-1), Long(2**63 - 1), Long(-(2**63)), Long(2**32), Long(1)]
    edges += [rng.randrange(-(2**31), 2**31) for _ in range(3)] + [Long(rng.randrange(-(2**63), 2**63)) for _ in range(3)]
    print('expr [{$bitAnd: ["$a", "$b"]}, {$bitOr: ["$a", "$b"]}, {$bitXor: ["$a", "$b"]}, {$bitNot: "$a"}, {$bitAnd: ["$a", "$b", "$a"]}]')
    for a in edges:
        for b in edges:
            both = Long if isinstance(a, Long) or isinstance(b, Long) else int
            alone = Long if isinstance(a, Long) else int
            answers = [both(int(a) & int(b)), both(int(a) | int(b)), both(int(a) ^ int(b)), alone(~int(a)), both(int(a) & int(b))]
            print(f"  {{a: {number(a)}, b: {number(b)}}} => [ {', '.join(number(x, True) for x in answers)} ]")


# What counts as false; every other value is true. The empty name is a missing field.
FALSE = ["", "null", "undefined", "false", "0", "0.0", "-0.0", 'NumberLong("0")', 'NumberDecimal("0")', 'NumberDecimal("-0.0")', 'NumberDecimal("0E+10")']
TRUE = [
    "true", "1", "-1", "5e-324", "NaN", "-Infinity", 'NumberLong("4294967296")', 'NumberDecimal("1E-6176")', 'NumberDecimal("NaN")', '""', '"false"', "[]",
    "[false]", "{}", 'BinData(0, "")', 'ObjectId("000000000000000000000000")', "new Date(0)", "Timestamp(0, 1)", "/a/", "MinKey", "MaxKey",
]


def truths():
    print("# What is true and what is false: each with each, for all that asks.")
    operands = '"$a", "$b"'
    print(
        f"expr [{{$and: [{operands}]}}, {{$or: [{operands}]}}, {{$not: [\"$a\"]}}, {{$cond: [\"$a\", 1, 2]}}, {{$cond: {{if: \"$b\", then: 1, else: 2}}}}, "
        '{$switch: {branches: [{case: "$a", then: "a"}, {case: "$b", then: "b"}], default: "none"}}, '
        f'{{$eq: [{{$ifNull: ["$a", "none"]}}, "none"]}}, {{$eq: [{{$ifNull: [{operands}, "none"]}}, "none"]}}, '
        '{$anyElementTrue: [["$a", "$b"]]}, {$allElementsTrue: [["$a", "$b"]]}, {$size: {$filter: {input: ["$a", "$b", 1], cond: "$$this"}}}]'
    )
    values = [(text, False) for text in FALSE] + [(text, True) for text in TRUE]
    for a, is_a in values:
        for b, is_b in values:
            no_a, no_b = (text in ("", "null", "undefined") for text in (a, b))
            answers = [is_a and is_b, is_a or is_b, not is_a, 1 if is_a else 2, 1 if is_b else 2]
            answers += ["a" if is_a else "b" if is_b else "none", no_a, no_a and no_b, is_a or is_b, is_a and is_b, is_a + is_b + 1]
            fields = ", ".join(f"{k}: {v}" for k, v in (("a", a), ("b", b)) if v)
            print(f"  {{{fields}}} => {shell(answers)}")


def objects():
    print("# Objects as Python's dictionaries: a name set again keeps its place and takes the new value.")
    rng = random.Random(19)
    names = ["a", "b", "c", "x.y", "$d", "_e", "0"]
    values = [0, 1.5, "s", None, True, [], [1, 2], {}, {"a": 1}, {"b": {"c": [None]}}]
    some = lambda: {name: rng.choice(values) for name in rng.sample(names, rng.randrange(6))}
    pairs_of = lambda d: [{"k": k, "v": v} for k, v in d.items()]
    print('expr [{$mergeObjects: ["$a", "$b", "$c"]}, {$mergeObjects: "$l"}, {$objectToArray: "$a"}, {$arrayToObject: {$concatArrays: [{$objectToArray: "$a"}, {$objectToArray: "$b"}]}}]')
    for _ in range(150):
        a, b, c = some(), some(), some()
        several = [some() for _ in range(rng.randrange(4))]
        merged = {}
        for one in several:
            merged.update(one)
        fields = {"a": a, "b": b, "l": several}
        if rng.randrange(3):
            fields["c"] = rng.choice([c, None])
        third = fields.get("c") or {}
        print(f"  {shell(fields)} => {shell([a | b | third, merged, pairs_of(a), a | b], True)}")
    print('expr [{$arrayToObject: "$p"}, {$arrayToObject: "$q"}]')
    for _ in range(100):
        listed = [[rng.choice(names), rng.choice(values)] for _ in range(rng.randrange(6))]
        fields = {"p": listed, "q": [{"k": k, "v": v} for k, v in listed]}
        print(f"  {shell(fields)} => {shell([dict(listed), dict(listed)], True)}")
    for key in names:
        field = f'{{$literal: "{key}"}}' if key.startswith("$") else f'"{key}"'
        print(
            f'expr [{{$ifNull: [{{$getField: {{field: {field}, input: "$a"}}}}, "none"]}}, {{$setField: {{field: {field}, input: "$a", value: "$v"}}}}, '
            f'{{$unsetField: {{field: {field}, input: "$a"}}}}, {{$setField: {{field: {field}, input: "$a", value: "$$REMOVE"}}}}]'
        )
        for _ in range(30):
            a, v = some(), rng.choice(values)
            found = a.get(key)
            rest = {k: w for k, w in a.items() if k != key}
            print(f"  {shell({'a': a, 'v': v})} => {shell(['none' if found is None else found, a | {key: v}, rest, rest], True)}")
        print("  {a: null, v: 1} => [ " + ('"none", null, null, null ]'))


TABLES = {
    "digests": digests, "json": json_texts, "vectors": vectors, "pairs": pairs, "sets": sets, "slices": slices,
    "texts": texts, "places": places, "bits": bits, "truths": truths, "objects": objects,
}
TABLES[sys.argv[1]]()
