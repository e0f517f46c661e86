#!/usr/bin/env python3
"""Writes the golden values in idem-core/tests/golden: what is stored for ever, and what it is stored as.

The values are computed here, from the documentation, and not by the code that they are to check. A value that is there
is never changed: to add one, add a case below and run this. A case that gives another value than its line is an error,
as is a line without a case. With --check nothing is written, and a case without a line is an error too.
"""

import hashlib
import hmac
import json
import re
import struct
import sys
from pathlib import Path
from urllib.parse import unquote_to_bytes

FOLDER = Path(__file__).resolve().parent.parent / "idem-core" / "tests" / "golden"


# Fields

def count(number):
    return struct.pack(">Q", number)


def text(value):
    return count(len(value)) + value


def raw(value):
    """Bytes as the cases give them: a text, or {"hex": ...}."""
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value.encode()


def sha256(message):
    return hashlib.sha256(message).digest()


# Canonical JSON

class NotCanonical(Exception):
    pass


class Number(str):
    """A number as it was written."""


def object_of(pairs):
    members = dict(pairs)
    if len(members) != len(pairs):
        raise NotCanonical
    return members


def no_constant(_):
    raise NotCanonical


def parse(body):
    try:
        return json.loads(
            body.decode(), parse_int=Number, parse_float=Number, parse_constant=no_constant, object_pairs_hook=object_of
        )
    except ValueError as error:
        raise NotCanonical from error


def number(written):
    sign, whole, fraction, exponent = re.fullmatch(r"(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?", written).groups()
    fraction = fraction or ""
    # The number is 0.digits times ten to the power point.
    point = len(whole) + int(exponent or 0)
    digits = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(digits)
    digits = digits.rstrip("0")
    if not digits:
        return "0"
    if not -(2**63) <= point - 1 < 2**63:
        raise NotCanonical
    if len(digits) <= point <= 21:
        shown = digits.ljust(point, "0")
    elif 0 < point <= 21:
        shown = digits[:point] + "." + digits[point:]
    elif -6 < point <= 0:
        shown = "0." + "0" * -point + digits
    else:
        shown = digits[0] + ("." + digits[1:] if len(digits) > 1 else "") + f"e{point - 1:+d}"
    return sign + shown


def canonical(value, depth=0):
    if depth > 128 or (depth == 128 and isinstance(value, (dict, list))):
        raise NotCanonical
    if isinstance(value, Number):
        return number(value)
    if isinstance(value, str):
        if any(0xD800 <= ord(character) < 0xE000 for character in value):
            raise NotCanonical
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return "[" + ",".join(canonical(element, depth + 1) for element in value) + "]"
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(canonical(name) + ":" + canonical(value[name], depth + 1) for name in names) + "}"
    return {None: "null", True: "true", False: "false"}[value]


def leave_out(value, place, pointers):
    def inside(token):
        return place + "/" + token.replace("~", "~0").replace("/", "~1")

    if isinstance(value, list):
        items = [(inside(str(index)), element) for index, element in enumerate(value)]
        return [leave_out(element, at, pointers) for at, element in items if at not in pointers]
    if isinstance(value, dict):
        items = [(inside(name), name, member) for name, member in value.items()]
        return {name: leave_out(member, at, pointers) for at, name, member in items if at not in pointers}
    return value


# Other bodies

def pairs(query):
    found = []
    for piece in query.split(b"&"):
        if piece:
            name, _, value = piece.partition(b"=")
            found.append(tuple(unquote_to_bytes(side.replace(b"+", b" ")) for side in (name, value)))
    return found


class Malformed(Exception):
    pass


# `; name=bare` or `; name="quoted"`
PARAMETER = rb'[ \t]*;[ \t]*([^\s;="]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"\\]*))'


def part_head(head):
    fields = [line.split(b":", 1) for line in head.split(b"\r\n")]
    if any(len(field) != 2 for field in fields):
        raise Malformed
    named = {}
    for name, value in fields:
        named.setdefault(name.lower(), []).append(value.strip(b" \t"))
    encodings = named.get(b"content-transfer-encoding", [])
    if not {encoding.lower() for encoding in encodings} <= {b"7bit", b"8bit", b"binary"}:
        raise Malformed
    dispositions, types = named.get(b"content-disposition", []), named.get(b"content-type", [])
    if len(dispositions) != 1 or len(types) > 1:
        raise Malformed
    kind, rest = dispositions[0][:9], dispositions[0][9:]
    parameters = {}
    while found := re.match(PARAMETER, rest, re.DOTALL):
        name, quoted, bare = found.groups()
        if name.lower() in parameters:
            raise Malformed
        parameters[name.lower()] = bare if quoted is None else quoted
        rest = rest[found.end() :]
    if kind.lower() != b"form-data" or rest:
        raise Malformed
    if b"name" not in parameters:
        raise Malformed
    listed = b"".join(text(name) + text(value) for name, value in sorted(parameters.items()))
    return count(len(parameters)) + listed + (b"\1" + text(types[0]) if types else b"\0")


def parts(boundary, body):
    if not 1 <= len(boundary) <= 70:
        raise Malformed
    before, *sections = (b"\r\n" + body).split(b"\r\n--" + boundary)
    if before or not sections or sections.pop() not in (b"--", b"--\r\n"):
        raise Malformed
    hashed = b""
    for section in sections:
        head, empty_line, content = section.partition(b"\r\n\r\n")
        if not head.startswith(b"\r\n") or not empty_line:
            raise Malformed
        digest = sha256(text(b"idem/file/v1") + content)
        hashed += part_head(head[2:]) + digest + count(len(content))
    return hashed


# What is stored

def body_content(body, without):
    mode, content = body["mode"], raw(body["content"])
    if mode == "json":
        try:
            return text(b"json") + canonical_left(content, without).encode()
        except NotCanonical:
            return text(b"json-not-canonical") + content
    if mode == "form":
        return text(b"form") + b"".join(text(name) + text(value) for name, value in pairs(content))
    if mode == "multipart":
        boundary = raw(body["boundary"])
        try:
            return text(b"multipart") + parts(boundary, content)
        except Malformed:
            return text(b"multipart-not-canonical") + text(boundary) + content
    return text(b"bytes") + content


def canonical_left(content, without):
    value = parse(content)
    canonical(value)
    return canonical(leave_out(value, "", without))


def fingerprint(case):
    def listed(values):
        return count(len(values)) + b"".join(text(name) + text(value) for name, value in values)

    def given(field):
        return [(raw(name), raw(value)) for name, value in case.get(field, [])]

    path = sorted(given("path"), key=lambda pair: pair[0])
    query = given("query") + pairs(raw(case.get("query_string", "")))
    headers = sorted(((name.lower(), value) for name, value in given("headers")), key=lambda pair: pair[0])
    contents = [(1, text(case["operation"].encode()))]
    contents += [(code, listed(values)) for code, values in ((2, path), (3, query), (4, headers)) if values]
    if "body" in case:
        contents.append((5, body_content(case["body"], case.get("without", []))))
    contents = [
        bytes([code]) + sha256(text(b"idem/content/v1") + bytes([code]) + content)
        for code, content in contents
    ]

    key = case.get("key")
    if key:
        name = key["id"].encode()
        keyed = lambda message: hmac.digest(raw(key["secret"]), message, "sha256")
    else:
        name, keyed = b"", sha256
    digest = keyed(text(b"idem/fingerprint/v1") + count(len(contents)) + b"".join(contents))
    short = [content[:1] + keyed(text(b"idem/part/v1") + content)[:8] for content in contents]
    return (b"\1" + bytes([len(name)]) + name + digest + bytes([len(short)]) + b"".join(short)).hex()


def varint(value):
    low = bytes([value & 0x7F | (0x80 if value >> 7 else 0)])
    return low + varint(value >> 7) if value >> 7 else low


def head(case):
    def string(value):
        return varint(len(value)) + value

    def fields(name):
        found = case.get(name, [])
        return varint(len(found)) + b"".join(string(raw(name).lower()) + string(raw(value)) for name, value in found)

    flags, given = 0, b""
    if "code" in case:
        flags, given = flags | 1, given + varint(case["code"])
    if "tombstone" in case:
        flags, given = flags | 2, given + varint(case["tombstone"])
    if "seal_key_id" in case:
        flags, given = flags | 4, given + string(case["seal_key_id"].encode())
    return (bytes([1, flags]) + given + fields("headers") + fields("trailers")).hex()


def derived_key(case):
    names = b"".join(text(case[name].encode()) for name in ("scope", "key", "label"))
    return sha256(b"idem/derived-key/v1" + names).hex()[:32]


def tag(case):
    names = text(case["scope"].encode()) + text(case["key"].encode())
    return hmac.digest(bytes.fromhex(case["secret"]["hex"]), b"idem/tag/v1" + names, "sha256").hex()[:16]


# Cases

KEY = {"id": "2031-a", "secret": {"hex": "07" * 32}}
LONG_KEY = {"id": "~" * 32, "secret": {"hex": "5a" * 100}}
SHORT_KEY = {"id": "k", "secret": "sixteen bytes .."}
CHARGE = "POST /v1/charges"


def json_cases():
    table = {
        "member order, white space, escapes": ' { "b": 1.0, "a": "\\u00e4", "c": [ ] } ',
        "names in UTF-16 order": '{"\\u20ac":0,"\\r":1,"\\ufb33":2,"1":3,"\\ud83d\\ude00":4,"\\u0080":5,"\\u00f6":6}',
        "nested": '{"z":[{"y":{"b":[],"a":{}}},null,true,false],"a":""}',
        "controls": '"\\u0000\\u001f\\b\\t\\n\\f\\r\\"\\\\\\/\\u007f\\u2028"',
        "no normalisation": '["\\u00e4","a\\u0308"]',
        "string": '"a"',
        "depth 128": "[" * 128 + "]" * 128,
        "depth 129": "[" * 129 + "]" * 129,
        "duplicate member": '{"a":1,"a":1}',
        "duplicate member by an escape": '{"a":1,"b":2,"\\u0061":1}',
        "lone surrogate": '"\\ud800"',
        "syntax": "{",
        "trailing comma": "[1,]",
        "two values": "1 2",
        "not a number": "NaN",
        "byte order mark": {"hex": "efbbbf31"},
        "not UTF-8": {"hex": "22ff22"},
        "empty": "",
    }
    numbers = [
        "0", "-0", "0.0e99", "1", "1.0", "10e-1", "-1.50", "100", "1e2", "9007199254740992", "9007199254740993",
        "1152921504606846976", "-9223372036854775808", "9223372036854775807", "18446744073709551615",
        "18446744073709551616", "1234567890123456789012345678901234567890", "0.1", "0.1000000000000000055", "1e20",
        "1e21", "123456789012345678901.25", "0.000001", "0.0000001", "1e400", "1e-400", "-12.5e3",
        "1e9223372036854775807", "1e9223372036854775808", "1e-9223372036854775808", "1e-9223372036854775809",
    ]
    table.update({f"number {written}": written for written in numbers})
    return [
        {"name": f"json: {name}", "operation": CHARGE, "body": {"mode": "json", "content": content}}
        for name, content in table.items()
    ]


def without_cases():
    document = '{"a/b":1,"m~n":{"x":[1,{"y":2},3]},"\\u00e4":[1,2,3,4,5,6,7,8,9,10,11],"":0,"z":null}'
    table = [
        ["/z"], ["/a~1b"], ["/m~0n"], ["/m~0n/x/1/y"], ["/m~0n/x/0", "/m~0n/x/2"], ["/\u00e4/10"], ["/\u00e4"], ["/"],
        ["/", "/z", "/a~1b", "/m~0n", "/\u00e4"], ["/nothing", "/\u00e4/01", "/\u00e4/-", "/z/0", "/m~0n/x/1/y/z"],
    ]
    cases = [(f"json without {' '.join(pointers)}", document, pointers) for pointers in table]
    cases.append(("json without, no canonical form", '{"z":1,"z":2}', ["/z"]))
    return [
        {"name": name, "operation": CHARGE, "body": {"mode": "json", "content": content}, "without": pointers}
        for name, content, pointers in cases
    ]


def form_cases():
    table = {
        "pairs": "amount=100&currency=eur",
        "escapes": "a+b=%c3%A4%2b&%61=",
        "not UTF-8": "a=%ff&b=%fe",
        "broken escapes": "a=%&b=%4&c=%zz",
        "empty pieces": "&a&&=&=b&a=b=c&",
        "empty": "",
        "raw bytes": {"hex": "613dff00"},
    }
    return [
        {"name": f"form: {name}", "operation": CHARGE, "body": {"mode": "form", "content": content}}
        for name, content in table.items()
    ]


def multipart_cases():
    def part(disposition, content, more=""):
        return f"--x\r\nContent-Disposition: {disposition}\r\n{more}\r\n{content}\r\n"

    field = part('form-data; name="a"', "1")
    file = part('form-data; name="f"; filename="a.txt"', "line\r\nline\r\n--y", "Content-Type: text/plain\r\n")
    table = {
        "no parts": "--x--",
        "field": field + "--x--\r\n",
        "field and file": field + file + "--x--\r\n",
        "file and field": file + field + "--x--",
        "empty file name": part('form-data; name="f"; filename=""', "") + "--x--",
        "empty media type": part('form-data; name="f"', "", "Content-Type:\r\n") + "--x--",
        "bare name, other order": part("FORM-DATA;FileName=b ; name=a", "1") + "--x--",
        "escaped names": part('form-data; name="a\\"b%22"; filename="c;d=\\\\"', "1") + "--x--",
        "extended file name": part("form-data; name=f; filename=\"a\"; filename*=utf-8''%c3%a4", "1") + "--x--",
        "other fields": part("form-data; name=a", "1", "Content-Transfer-Encoding: binary\r\nX-A: b\r\n") + "--x--",
        "content like a delimiter": part("form-data; name=a", "\r\n--\r\n-x\r\n--w") + "--x--",
        "encoded": part("form-data; name=a", "MQ==", "Content-Transfer-Encoding: base64\r\n") + "--x--",
        "no name": part("form-data", "1") + "--x--",
        "another type": part("attachment; name=a", "1") + "--x--",
        "name twice": part("form-data; name=a; NAME=a", "1") + "--x--",
        "disposition twice": part("form-data; name=a", "1", "Content-Disposition: form-data; name=a\r\n") + "--x--",
        "open quotation": part('form-data; name="a\\"', "1") + "--x--",
        "not closed": field,
        "text in front": "text\r\n" + field + "--x--",
        "text behind": field + "--x--\r\ntext",
        "padding": field + "--x --",
        "longer boundary": field + "--xy\r\n--x--",
        "empty": "",
    }
    cases = [(name, "x", content) for name, content in table.items()]
    cases.append(("other boundary", "two words", (field + file + "--x--\r\n").replace("--x", "--two words")))
    cases.append(("raw bytes", {"hex": "ff"}, {"hex": "2d2dff2d2d"}))
    cases.append(("no boundary", "", "----"))
    cases.append(("long boundary", "b" * 71, "--" + "b" * 71 + "--"))
    cases.append(("longest boundary", "b" * 70, "--" + "b" * 70 + "--"))
    return [
        {
            "name": f"multipart: {name}",
            "operation": CHARGE,
            "body": {"mode": "multipart", "boundary": boundary, "content": content},
        }
        for name, boundary, content in cases
    ]


def request_cases():
    full = {
        "path": [["b", "2"], ["a", "1"]],
        "query": [["z", "\u00e4"], ["a", ""]],
        "headers": [["X-B", {"hex": "ff"}], ["x-a", "2"], ["X-A", "1"]],
    }
    cases = [
        {"name": "operation only", "operation": CHARGE},
        {"name": "empty operation", "operation": ""},
        {"name": "path", "operation": CHARGE, "path": [["id", "42"], ["id", "41"], ["", ""]]},
        {"name": "query string", "operation": CHARGE, "query": [["a", "1"]], "query_string": "b=%ff+&a=1&&c"},
        {"name": "headers", "operation": CHARGE, "headers": [["Z", ""], ["a", "2"], ["A", "1"]]},
        {"name": "empty bytes", "operation": CHARGE, "body": {"mode": "bytes", "content": ""}},
        {"name": "bytes", "operation": CHARGE, "body": {"mode": "bytes", "content": "{"}},
        {"name": "many bytes", "operation": CHARGE, "body": {"mode": "bytes", "content": {"hex": "00ff" * 100}}},
        {"name": "all parts", "operation": CHARGE, **full, "body": {"mode": "bytes", "content": ""}},
        {"name": "all parts, json", "operation": CHARGE, **full, "body": {"mode": "json", "content": "[]"}},
    ]
    keyed = [{**cases[-1], "name": f"all parts, key {key['id']}", "key": key} for key in (KEY, LONG_KEY, SHORT_KEY)]
    bodies = [
        {"mode": "bytes", "content": "--x--"},
        {"mode": "json", "content": "--x--"},
        {"mode": "json", "content": '{"b":1e1,"a":0}'},
        {"mode": "form", "content": "--x--"},
        {"mode": "multipart", "boundary": "x", "content": "--x--"},
        {"mode": "multipart", "boundary": "y", "content": "--x--"},
    ]
    keyed += [
        {"name": f"keyed {body['mode']} {index}", "operation": CHARGE, "body": body, "key": KEY}
        for index, body in enumerate(bodies)
    ]
    return cases + keyed


def response_cases():
    return [
        {"name": "value"},
        {"name": "code", "code": 204},
        {"name": "code 0", "code": 0},
        {"name": "greatest code", "code": 65535},
        {"name": "headers", "code": 201, "headers": [["Content-Type", "text/plain"], ["location", "/v1/charges/1"]]},
        {"name": "repeated headers", "code": 200, "headers": [["Set-Cookie", "a=1"], ["set-cookie", "b=2"], ["x", ""]]},
        {"name": "raw bytes", "code": 200, "headers": [["x", {"hex": "00ff7f80"}]]},
        {"name": "trailers", "code": 200, "headers": [["a", "1"]], "trailers": [["Digest", "sha-256=1"], ["x", "y"]]},
        {"name": "long value", "code": 500, "headers": [["x", "v" * 300]]},
        {"name": "many headers", "code": 200, "headers": [["h", "v"]] * 130},
        {"name": "tombstone", "code": 200, "tombstone": 1048577},
        {"name": "tombstone of a value", "tombstone": 0},
        {"name": "greatest tombstone", "tombstone": 2**64 - 1},
        {"name": "seal", "code": 200, "seal_key_id": "2031-a"},
        {"name": "empty seal", "seal_key_id": ""},
        {"name": "seal in Unicode", "code": 404, "seal_key_id": "\u00e4\U0001f600"},
        {
            "name": "all",
            "code": 302,
            "tombstone": 128,
            "seal_key_id": "k",
            "headers": [["A", "1"]],
            "trailers": [["B", "2"]],
        },
    ]


def name_cases():
    """Scopes, keys and labels, which run together if their lengths do not count."""
    table = [("acct_1", "a3f7b9d1", "charge"), ("acct_1", "a3f7b9d1", "receipt"), ("a", "bc", "d"), ("ab", "c", "d")]
    table += [("a", "b", "cd"), ("a", "b", ""), ("s" * 100, "k" * 200, "\u00e4" * 50)]
    return [
        {"name": f"{scope[:8]} {key[:8]} {label[:8]}", "scope": scope, "key": key, "label": label}
        for scope, key, label in table
    ]


def tag_cases():
    cases = []
    for secret in ("07" * 32, "00" * 31 + "01"):
        for case in name_cases():
            case = {**case, "secret": {"hex": secret}}
            del case["label"]
            case["name"] = f"{case['scope'][:8]} {case['key'][:8]}, secret ..{secret[-2:]}"
            if all(known["name"] != case["name"] for known in cases):
                cases.append(case)
    return cases


FILES = {
    "derived-keys.jsonl": ("derived_key", derived_key, name_cases()),
    "fingerprints.jsonl": (
        "fingerprint",
        fingerprint,
        request_cases() + json_cases() + without_cases() + form_cases() + multipart_cases(),
    ),
    "responses.jsonl": ("head", head, response_cases()),
    "tags.jsonl": ("tag", tag, tag_cases()),
}


def update(path, field, compute, cases, check):
    """Returns what is wrong with a file; appends the cases that have no line."""
    known = {json.loads(line)["name"]: line for line in path.read_text().splitlines()} if path.exists() else {}
    wrong, added = [], []
    for case in cases:
        line = json.dumps({**case, field: compute(case)}, ensure_ascii=True)
        if case["name"] not in known:
            added.append(line)
        elif known.pop(case["name"]) != line:
            wrong.append(f"{path.name}: the line {case['name']!r} would change")
    wrong += [f"{path.name}: the line {name!r} has no case" for name in known]
    if len({case["name"] for case in cases}) != len(cases):
        wrong.append(f"{path.name}: two cases have one name")
    if check and added:
        wrong.append(f"{path.name}: {len(added)} cases have no line")
    elif added and not wrong:
        with path.open("a") as file:
            file.writelines(line + "\n" for line in added)
        print(f"{path.name}: {len(added)} lines added")
    return wrong


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(f"usage: {sys.argv[0]} [--check]")
    FOLDER.mkdir(exist_ok=True)
    wrong = []
    for name, (field, compute, cases) in FILES.items():
        wrong += update(FOLDER / name, field, compute, cases, check=bool(sys.argv[1:]))
    if wrong:
        sys.exit("\n".join(wrong))


main()
