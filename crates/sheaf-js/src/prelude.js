// MongoDB's types and helper functions, which every environment has in addition to the language.
//
// Evaluates to an object that only the engine can access. A value of a BSON type that JavaScript
// does not have is an object with a tag and, under another symbol, its content. Both are validated
// when the value is converted to BSON, because a script can forge them.
(function () {
  "use strict";
  const G = globalThis;
  const tag = Symbol("type"), content = Symbol("content"), origin = Symbol("origin");
  const define = Object.defineProperty;
  // Called by another name, `eval` evaluates in the global scope.
  const evaluate = eval;
  const TAG = { oid: 1, long: 2, int: 3, decimal: 4, bin: 5, timestamp: 6, min: 7, max: 8,
    code: 9, pointer: 10, regex: 11, date: 12, fn: 13, boxed: 14 };

  function hide(object, key, value) {
    define(object, key, { value, writable: true, configurable: true, enumerable: false });
  }
  function method(prototype, name, f) { hide(prototype, name, f); }
  function getter(prototype, name, get) {
    define(prototype, name, { get, configurable: true, enumerable: false });
  }
  function type(constructor, number) {
    hide(constructor.prototype, tag, number);
    hide(G, constructor.name, constructor);
    return constructor;
  }
  function made(constructor, value) {
    const out = Object.create(constructor.prototype);
    hide(out, content, value);
    return out;
  }
  function quote(text) { return JSON.stringify(String(text)); }
  function hex(number, digits) { return number.toString(16).padStart(digits, "0"); }

  const B64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  function hexToBase64(text) {
    if (text.length % 2 || /[^0-9a-fA-F]/.test(text)) {
      throw new Error("a hex string has two digits for each byte");
    }
    let out = "";
    for (let i = 0; i < text.length; i += 6) {
      const part = text.substr(i, 6), bytes = part.length / 2;
      const n = parseInt(part.padEnd(6, "0"), 16);
      for (let k = 0; k < 4; k++) {
        out += k <= bytes ? B64[(n >> (18 - 6 * k)) & 63] : "=";
      }
    }
    return out;
  }
  function base64ToHex(text) {
    let out = "", bits = 0, have = 0;
    for (const c of text) {
      if (c === "=") break;
      bits = ((bits << 6) | B64.indexOf(c)) & 0xffff;
      have += 6;
      if (have >= 8) { have -= 8; out += hex((bits >> have) & 255, 2); }
    }
    return out;
  }

  const machine = hex(Math.floor(Math.random() * 0x1000000), 6) + hex(Math.floor(Math.random() * 0x10000), 4);
  let counter = Math.floor(Math.random() * 0x1000000);
  function ObjectId(text) {
    if (text === undefined) {
      counter = (counter + 1) % 0x1000000;
      text = hex(Math.floor(Date.now() / 1000) >>> 0, 8) + machine + hex(counter, 6);
    } else if (typeof text === "object" && text !== null && text[tag] === TAG.oid) {
      text = text.str;
    }
    if (typeof text !== "string" || !/^[0-9a-fA-F]{24}$/.test(text)) {
      throw new Error("invalid object id: length");
    }
    return made(ObjectId, text.toLowerCase());
  }
  type(ObjectId, TAG.oid);
  hide(G, "ObjectID", ObjectId);
  getter(ObjectId.prototype, "str", function () { return this[content]; });
  method(ObjectId.prototype, "toString", function () { return "ObjectId(" + quote(this[content]) + ")"; });
  method(ObjectId.prototype, "valueOf", function () { return this[content]; });
  method(ObjectId.prototype, "toHexString", function () { return this[content]; });
  method(ObjectId.prototype, "getTimestamp", function () {
    return new Date(parseInt(this[content].substr(0, 8), 16) * 1000);
  });
  method(ObjectId.prototype, "equals", function (other) { return !!other && this[content] === other.str; });

  function integer(value, bits) {
    if (value === undefined) return 0n;
    if (typeof value === "object" && value !== null && value[content] !== undefined) value = value[content];
    if (typeof value === "string") {
      if (!/^\s*[+-]?\d+\s*$/.test(value)) throw new Error("could not convert " + quote(value) + " to an integer");
      value = BigInt(value.trim().replace(/^\+/, ""));
    } else if (typeof value !== "bigint") {
      value = Math.trunc(Number(value));
      if (value !== value) throw new Error("could not convert a value to an integer");
      const most = Math.pow(2, bits - 1);
      value = value >= most ? (1n << BigInt(bits - 1)) - 1n : value < -most ? -(1n << BigInt(bits - 1)) : BigInt(value);
    }
    if (BigInt.asIntN(bits, value) !== value) throw new Error("could not convert a number to " + bits + " bits");
    return value;
  }
  function NumberLong(value, top, bottom) {
    if (bottom === undefined) return made(NumberLong, integer(value, 64));
    return made(NumberLong, (integer(top, 32) << 32n) | BigInt(Number(bottom) >>> 0));
  }
  type(NumberLong, TAG.long);
  method(NumberLong.prototype, "toNumber", function () { return Number(this[content]); });
  method(NumberLong.prototype, "valueOf", function () { return Number(this[content]); });
  method(NumberLong.prototype, "toString", function () {
    const n = this[content];
    return BigInt.asIntN(32, n) === n ? "NumberLong(" + n + ")" : "NumberLong(" + quote(n) + ")";
  });
  method(NumberLong.prototype, "exactValueString", function () { return String(this[content]); });
  method(NumberLong.prototype, "compare", function (other) {
    const a = this[content], b = integer(other, 64);
    return a < b ? -1 : a > b ? 1 : 0;
  });
  getter(NumberLong.prototype, "floatApprox", function () { return Number(this[content]); });
  getter(NumberLong.prototype, "top", function () { return Number(BigInt.asIntN(32, this[content] >> 32n)); });
  getter(NumberLong.prototype, "bottom", function () { return Number(BigInt.asUintN(32, this[content])); });

  function NumberInt(value) { return made(NumberInt, Number(integer(value, 32))); }
  type(NumberInt, TAG.int);
  method(NumberInt.prototype, "toNumber", function () { return this[content]; });
  method(NumberInt.prototype, "valueOf", function () { return this[content]; });
  method(NumberInt.prototype, "toString", function () { return "NumberInt(" + this[content] + ")"; });

  function NumberDecimal(value) {
    const text = value === undefined ? "0" : typeof value === "object" && value !== null && value[tag] === TAG.decimal ? value.text() : String(value);
    if (!/^\s*[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)\s*$/i.test(text)) {
      throw new Error("Input is not a valid Decimal128 value.");
    }
    return made(NumberDecimal, text.trim());
  }
  type(NumberDecimal, TAG.decimal);
  // The text of a decimal; if it came from BSON, followed by "#" and its bits.
  method(NumberDecimal.prototype, "text", function () { return this[content].split("#")[0]; });
  method(NumberDecimal.prototype, "toString", function () { return "NumberDecimal(" + quote(this.text()) + ")"; });

  function binary(subtype, base64) { return made(BinData, subtype + ":" + base64); }
  function BinData(subtype, base64) {
    subtype = Number(subtype);
    if (!(subtype >= 0 && subtype <= 255) || subtype % 1) throw new Error("BinData subtype must be between 0 and 255");
    if (typeof base64 !== "string" || base64.length % 4 || !/^[A-Za-z0-9+/]*={0,2}$/.test(base64)) {
      throw new Error("invalid base64");
    }
    return binary(subtype, base64);
  }
  type(BinData, TAG.bin);
  function subtypeOf(b) { return parseInt(b[content], 10); }
  function base64Of(b) { const t = b[content]; return t.substr(t.indexOf(":") + 1); }
  method(BinData.prototype, "subtype", function () { return subtypeOf(this); });
  method(BinData.prototype, "base64", function () { return base64Of(this); });
  method(BinData.prototype, "hex", function () { return base64ToHex(base64Of(this)); });
  method(BinData.prototype, "length", function () {
    const t = base64Of(this);
    return t.length / 4 * 3 - (t.endsWith("==") ? 2 : t.endsWith("=") ? 1 : 0);
  });
  method(BinData.prototype, "toString", function () {
    if (subtypeOf(this) === 4 && this.length() === 16) {
      return "UUID(" + quote(this.hex().replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5")) + ")";
    }
    return "BinData(" + subtypeOf(this) + "," + quote(base64Of(this)) + ")";
  });
  hide(G, "HexData", function HexData(subtype, text) { return BinData(subtype, hexToBase64(String(text))); });
  hide(G, "MD5", function MD5(text) { return BinData(5, hexToBase64(String(text))); });
  hide(G, "UUID", function UUID(text) {
    if (text === undefined) {
      text = "";
      for (let i = 0; i < 32; i++) {
        text += i === 12 ? "4" : i === 16 ? hex(8 + Math.floor(Math.random() * 4), 1) : hex(Math.floor(Math.random() * 16), 1);
      }
    }
    text = String(text).replace(/-/g, "");
    if (text.length !== 32) throw new Error("UUID string must have 32 hex characters");
    return BinData(4, hexToBase64(text));
  });

  function Timestamp(t, i) {
    function part(n) {
      n = n === undefined ? 0 : Number(n);
      if (!(n >= 0 && n <= 0xffffffff)) throw new Error("Timestamp parts are between 0 and 4294967295");
      return Math.floor(n);
    }
    return made(Timestamp, part(t) + ":" + part(i));
  }
  type(Timestamp, TAG.timestamp);
  getter(Timestamp.prototype, "t", function () { return Number(this[content].split(":")[0]); });
  getter(Timestamp.prototype, "i", function () { return Number(this[content].split(":")[1]); });
  method(Timestamp.prototype, "getTime", function () { return this.t; });
  method(Timestamp.prototype, "getInc", function () { return this.i; });
  method(Timestamp.prototype, "toString", function () { return "Timestamp(" + this.t + ", " + this.i + ")"; });

  function MinKey() { return minKey; }
  function MaxKey() { return maxKey; }
  type(MinKey, TAG.min);
  type(MaxKey, TAG.max);
  const minKey = made(MinKey, 0), maxKey = made(MaxKey, 0);
  method(MinKey.prototype, "toString", function () { return '{ "$minKey" : 1 }'; });
  method(MaxKey.prototype, "toString", function () { return '{ "$maxKey" : 1 }'; });

  function Code(text, scope) {
    const out = made(Code, String(text));
    if (scope !== undefined) hide(out, "scope", scope);
    return out;
  }
  type(Code, TAG.code);
  getter(Code.prototype, "code", function () { return this[content]; });
  method(Code.prototype, "toString", function () { return this[content]; });

  function DBPointer(namespace, id) { return made(DBPointer, ObjectId(id).str + "\0" + namespace); }
  type(DBPointer, TAG.pointer);
  getter(DBPointer.prototype, "ns", function () { return this[content].substr(25); });
  getter(DBPointer.prototype, "id", function () { return ObjectId(this[content].substr(0, 24)); });

  hide(G, "DBRef", function DBRef(collection, id, db) {
    const out = { $ref: collection, $id: id };
    if (db !== undefined) out.$db = db;
    return out;
  });

  hide(RegExp.prototype, tag, TAG.regex);
  hide(Date.prototype, tag, TAG.date);
  hide(Function.prototype, tag, TAG.fn);
  for (const boxed of [String, Number, Boolean, BigInt]) hide(boxed.prototype, tag, TAG.boxed);

  hide(G, "ISODate", function ISODate(text) {
    if (text === undefined) return new Date();
    const m = /^(\d{4})-?(\d{2})-?(\d{2})(?:[T ](\d{2})(?::?(\d{2})(?::?(\d{2})(\.\d+)?)?)?(Z|[+-]\d{2}(?::?\d{2})?)?)?$/.exec(text);
    if (!m) throw new Error("invalid ISO date: " + text);
    let ms = Date.UTC(m[1], m[2] - 1, m[3], m[4] || 0, m[5] || 0, m[6] || 0, m[7] ? Math.round(Number(m[7]) * 1000) : 0);
    if (m[8] && m[8] !== "Z") {
      const zone = m[8].replace(":", "");
      const minutes = Number(zone.substr(1, 2)) * 60 + Number(zone.substr(3, 2) || 0);
      ms -= (zone[0] === "-" ? -1 : 1) * minutes * 60000;
    }
    return new Date(ms);
  });

  function tojson(value, indent, nolint) {
    const kind = typeof value;
    if (value === null) return "null";
    if (kind === "string") return quote(value);
    if (kind === "undefined" || kind === "number" || kind === "boolean") return String(value);
    if (kind === "bigint") return "NumberLong(" + quote(value) + ")";
    if (kind === "symbol") return value.toString();
    if (kind === "function") return value.toString();
    const t = value[tag];
    if (t === TAG.date) return isNaN(value) ? "ISODate(\"\")" : 'ISODate("' + value.toISOString().replace(/\.000Z$/, "Z") + '")';
    if (t === TAG.code) return "{ \"code\" : " + quote(value.code) + " }";
    if (t === TAG.pointer) return "DBPointer(" + quote(value.ns) + ", " + value.id + ")";
    if (t !== undefined && t !== TAG.boxed) return String(value);
    if (t === TAG.boxed) return tojson(value.valueOf());
    return tojsonObject(value, indent, nolint);
  }
  function tojsonObject(value, indent, nolint) {
    indent = indent || "";
    const inner = indent + "\t", array = Array.isArray(value), parts = [];
    if (array) {
      for (let i = 0; i < value.length; i++) parts.push(tojson(value[i], inner, nolint));
    } else {
      for (const key of Object.keys(value)) parts.push(quote(key) + " : " + tojson(value[key], inner, nolint));
    }
    const open = array ? "[" : "{", close = array ? "]" : "}";
    if (parts.length === 0) return array ? "[ ]" : "{ }";
    const line = open + " " + parts.join(", ") + " " + close;
    if (nolint || (line.length < 80 && line.indexOf("\n") < 0)) return line;
    return open + "\n" + inner + parts.join(",\n" + inner) + "\n" + indent + close;
  }
  hide(G, "tojson", tojson);
  hide(G, "tojsonObject", tojsonObject);
  hide(G, "tojsononeline", function tojsononeline(value) { return tojson(value, "", true); });
  for (const name of ["print", "printjson", "printjsononeline", "gc"]) hide(G, name, function () {});
  hide(G, "isNumber", function isNumber(x) { return typeof x === "number"; });
  hide(G, "isString", function isString(x) { return typeof x === "string"; });
  hide(G, "isObject", function isObject(x) { return typeof x === "object" && x !== null; });
  hide(G, "version", function version() { return "8.2.0"; });
  hide(G, "doassert", function doassert(message) { throw new Error(message); });
  hide(G, "assert", function assert(value, message) {
    if (!value) throw new Error("assert failed" + (message === undefined ? "" : " : " + message));
  });

  function helper(owner, name, f) { hide(owner, name, f); }
  helper(Array, "sum", function (a) {
    if (a.length === 0) return null;
    let s = a[0];
    for (let i = 1; i < a.length; i++) s += a[i];
    return s;
  });
  helper(Array, "avg", function (a) { return a.length === 0 ? null : Array.sum(a) / a.length; });
  helper(Array, "stdDev", function (a) {
    const mean = Array.avg(a);
    let sum = 0;
    for (let i = 0; i < a.length; i++) sum += Math.pow(a[i] - mean, 2);
    return Math.sqrt(sum / a.length);
  });
  helper(Array, "contains", function (a, x) {
    for (let i = 0; i < a.length; i++) if (a[i] == x) return true;
    return false;
  });
  helper(Array, "unique", function (a) {
    const seen = new Set(), out = [];
    for (let i = 0; i < a.length; i++) {
      const key = tojson(a[i], "", true);
      if (!seen.has(key)) { seen.add(key); out.push(a[i]); }
    }
    return out;
  });
  helper(Array, "tojson", function (a, indent, nolint) { return tojson(a, indent, nolint); });
  helper(Object, "extend", function (to, from) {
    for (const key of Object.keys(from)) to[key] = from[key];
    return to;
  });
  helper(Object, "merge", function (a, b) { return Object.extend(Object.extend({}, a), b); });
  helper(Object, "keySet", function (o) { return Object.keys(o); });
  helper(String.prototype, "ltrim", function () { return this.replace(/^\s+/, ""); });
  helper(String.prototype, "rtrim", function () { return this.replace(/\s+$/, ""); });
  helper(Number.prototype, "zeroPad", function (width) { return String(this).padStart(width, "0"); });

  // Loops of the engine over the elements of an array that has a length but no elements, or over
  // the texts of a search, do not check for interruption. Their input is bounded instead.
  const ELEMENTS_MAX = 1 << 24, COMPARISONS_MAX = Math.pow(2, 33);
  function lengthOf(list) {
    if (list === null || typeof list !== "object") return 0;
    for (let o = list; o !== null; o = Object.getPrototypeOf(o)) {
      const found = Object.getOwnPropertyDescriptor(o, "length");
      if (found === undefined) continue;
      if ("value" in found && (typeof found.value !== "object" || found.value === null)) return Number(found.value);
      return ArrayBuffer.isView(list) ? 0 : Infinity;
    }
    return 0;
  }
  function bound(owner, name) {
    const original = owner[name];
    const apply = Reflect.apply;
    hide(owner, name, function (...args) {
      if (lengthOf(this) > ELEMENTS_MAX) throw new RangeError(name + ": an array of more than " + ELEMENTS_MAX + " elements");
      return apply(original, this, args);
    });
    hide(owner[name], "name", name);
  }
  for (const name of ["join", "toString", "toLocaleString", "fill", "reverse", "copyWithin", "shift",
    "unshift", "splice", "slice", "sort", "toSorted", "toReversed", "toSpliced", "with"]) {
    bound(Array.prototype, name);
  }
  hide(Array.prototype, "concat", function concat(...lists) {
    const out = [];
    for (const list of [this, ...lists]) {
      if (!Array.isArray(list)) out.push(list);
      else if (list.length + out.length > ELEMENTS_MAX) throw new RangeError("concat: too many elements");
      else for (let i = 0; i < list.length; i++) out.push(list[i]);
    }
    return out;
  });
  hide(Array.prototype, "flat", function flat(depth) {
    depth = depth === undefined ? 1 : Number(depth);
    const out = [];
    (function add(list, depth) {
      for (let i = 0; i < list.length; i++) {
        if (!(i in list)) continue;
        if (depth >= 1 && Array.isArray(list[i])) add(list[i], depth - 1);
        else out.push(list[i]);
      }
    })(this, depth);
    return out;
  });
  // The engine would call a native `next` without an interruption check.
  const iterator = Object.getPrototypeOf([][Symbol.iterator]());
  const next = iterator.next, apply = Reflect.apply;
  hide(iterator, "next", function () { return apply(next, this, []); });
  const stringify = JSON.stringify;
  hide(JSON, "stringify", function (value, replacer, space) {
    if (Array.isArray(replacer) && replacer.length > ELEMENTS_MAX) throw new RangeError("stringify: a list of too many names");
    return stringify(value, replacer, space);
  });
  for (const name of ["indexOf", "lastIndexOf", "includes", "split", "replace", "replaceAll"]) {
    const original = String.prototype[name];
    hide(String.prototype, name, function (wanted, ...rest) {
      if (this === null || this === undefined) throw new TypeError("not a string");
      const text = String(this);
      if (wanted !== null && typeof wanted === "object" && wanted[tag] === TAG.regex) {
        return apply(original, text, [wanted, ...rest]);
      }
      if (wanted !== undefined || name !== "split") wanted = String(wanted);
      if (wanted !== undefined && text.length * wanted.length > COMPARISONS_MAX) {
        throw new RangeError(name + ": the texts are too long to search");
      }
      return apply(original, text, [wanted, ...rest]);
    });
    hide(String.prototype[name], "name", name);
  }
  for (const name of ["SharedArrayBuffer", "Atomics", "WebAssembly", "performance", "navigator", "queueMicrotask", "Iterator"]) delete G[name];

  let emitted = null;
  hide(G, "emit", function emit(k, v) {
    if (arguments.length !== 2) throw new Error("emit takes 2 args");
    if (emitted === null) throw new Error("emit is available in the map function of mapReduce only");
    emitted.push({ k: k === undefined ? null : k, v });
  });

  return {
    __proto__: null,
    tag, content, origin, functions: [],
    oid(text) { return made(ObjectId, text); },
    long(value) { return made(NumberLong, value); },
    decimal(text) { return made(NumberDecimal, text); },
    binary,
    timestamp(text) { return made(Timestamp, text); },
    minKey, maxKey,
    code(text, scope) { return Code(text, scope); },
    pointer(text) { return made(DBPointer, text); },
    date(ms) { return new Date(ms); },
    largeDate(ms) { const out = new Date(NaN); hide(out, content, ms); return out; },
    regex(pattern, options, text) {
      let out;
      try { out = new RegExp(pattern, options); } catch (e) { out = new RegExp("(?!)"); }
      hide(out, content, text);
      return out;
    },
    millis(date) { const ms = date[content]; return ms === undefined ? Date.prototype.getTime.call(date) : ms; },
    pattern(regex) {
      const own = regex[content];
      if (own !== undefined) return own;
      const escaped = regex.source;
      return (escaped === "(?:)" ? "" : escaped) + "\0" + String(regex.flags).replace(/[^imsu]/g, "");
    },
    textOf(f) { return Function.prototype.toString.call(f); },
    unboxed(value) { return value.valueOf(); },
    fold(f, state, calls) {
      for (let i = 0; i < calls.length; i++) state = f(state, ...calls[i]);
      return state;
    },
    emit(f, doc) {
      emitted = [];
      try { apply(f, doc, []); return emitted; } finally { emitted = null; }
    },
    stored(name, text) {
      define(G, name, {
        configurable: true, enumerable: false,
        get() { const value = evaluate("(" + text + "\n)"); hide(G, name, value); return value; },
        set(value) { hide(G, name, value); },
      });
    },
    global(name, value) { hide(G, name, value); },
    truth(value) { return !!value; },
  };
})()
