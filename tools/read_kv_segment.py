#!/usr/bin/env python3
"""Lists and verifies the records of a KV store's folder, knowing docs/formats/kv_segment.md only.

    read_kv_segment.py FOLDER                one JSON line a record, then one for the whole folder
    read_kv_segment.py FOLDER --fast         without the checksums of payloads
    read_kv_segment.py FOLDER --extract KEY  writes one record's payload to stdout (not encrypted)

begins: its parent is the root of its space, of requests without a salt.
state: "live", "expired", "erased" (the journal says so) or "damaged" (with "why"). Exit code 1 when
something is damaged, 2 when this is no store. Reads only; Python 3.8, standard library.
"""
import argparse
import hashlib
import hmac
import json
import pathlib
import re
import struct
import sys
import time

BLOCK, HEADER, ENTRY, BATCH_HEADER, IDS_MAX = 4096, 512, 128, 64, 896
CLASSES = ["10m", "1h", "72h", "7d", "pinned"]
SECONDS = [600, 3600, 72 * 3600, 7 * 86400, (2**63 - 1) // 10**9]
KINDS = ["global", "window"]
PUT, TOUCH, ERASE, DROP, SEAL, GUARANTEE = range(6)
EVERYWHERE = 2**63


def make_tables():
    """tables[k][b]: what byte b leaves once k more zero bytes have passed."""
    first = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        first.append(byte)
    tables = [first]
    for _ in range(7):
        tables.append([(v >> 8) ^ first[v & 255] for v in tables[-1]])
    return tables


TABLES = make_tables()


def crc32c(data, crc=0):
    t0, t1, t2, t3, t4, t5, t6, t7 = TABLES
    crc ^= 0xFFFFFFFF
    whole = len(data) & ~7
    for (w,) in struct.iter_unpack("<Q", data[:whole]):
        w ^= crc
        crc = (t7[w & 255] ^ t6[w >> 8 & 255] ^ t5[w >> 16 & 255] ^ t4[w >> 24 & 255]
               ^ t3[w >> 32 & 255] ^ t2[w >> 40 & 255] ^ t1[w >> 48 & 255] ^ t0[w >> 56])
    for byte in data[whole:]:
        crc = (crc >> 8) ^ t0[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


class Damaged(Exception):
    pass


def check(data, magic, what):
    """The prefix of everything: magic, version, CRC of the whole with its own field as zero."""
    if len(data) < 16 or data[:8] != magic:
        raise Damaged(f"{what}: no {magic.decode()} here")
    if crc32c(data[16:], crc32c(bytes(4), crc32c(data[:12]))) != u32(data, 12):
        raise Damaged(f"{what}: wrong CRC-32C")
    if u32(data, 8) != 1:
        raise Damaged(f"{what}: version {u32(data, 8)}, this reader knows 1")


def u32(data, at):
    return struct.unpack_from("<I", data, at)[0]


def u64(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def i64(data, at):
    return struct.unpack_from("<q", data, at)[0]


def blocks(size):
    return (size + BLOCK - 1) // BLOCK * BLOCK


def read_at(file, offset, size):
    file.seek(offset)
    return file.read(size)


def parse_entry(data, at):
    kind, record, ttl, flags, segment = struct.unpack_from("<4BI", data, at)
    if kind > GUARANTEE or record > 1 or ttl > 4 or flags > 1:
        raise Damaged("an entry makes no sense")
    pages, uses = struct.unpack_from("<HH", data, at + 20)
    return {
        "what": kind, "segment": segment, "offset": u64(data, at + 8),
        "bytes": u32(data, at + 16) * BLOCK, "kind": KINDS[record], "class": CLASSES[ttl],
        "encrypted": flags == 1, "pages": pages, "uses": uses,
        "space": data[at + 24:at + 32].hex(), "key": data[at + 32:at + 64].hex(),
        "parent": data[at + 64:at + 96].hex(), "written_s": i64(data, at + 96),
        "last_use_s": i64(data, at + 104), "guaranteed_until_s": i64(data, at + 112),
        "sequence": u64(data, at + 120),
    }


def parse_header(data, what):
    """A record's header and ids from its first block."""
    if len(data) < HEADER or data[:8] != b"ArteryRC":
        raise Damaged(f"{what}: no record here")
    ids = u32(data, 24)
    head = HEADER + 4 * ids
    if ids > IDS_MAX or len(data) < head:
        raise Damaged(f"{what}: {ids} token ids")
    check(data[:head], b"ArteryRC", what)
    kind, ttl, flags = data[16:19]
    if kind > 1 or ttl > 4 or flags > 1:
        raise Damaged(f"{what}: kind {kind}, class {ttl}, flags {flags}")
    payload = u64(data, 32)
    return {
        "kind": KINDS[kind], "class": CLASSES[ttl], "encrypted": flags == 1,
        "pages": u32(data, 20), "payload_bytes": payload, "bytes": blocks(head + payload),
        "sequence": u64(data, 40), "epoch": u64(data, 48), "written_s": i64(data, 56),
        "guaranteed_until_s": i64(data, 64), "crcs": struct.unpack_from("<4I", data, 72),
        "space_digest": data[96:128].hex(), "space": data[96:104].hex(),
        "key": data[128:160].hex(), "parent": data[160:192].hex(), "head": head,
        "ids": struct.unpack_from(f"<{ids}i", data, HEADER),
    }


def damaged_quarter(file, entry, header):
    """The first quarter of the payload whose checksum is wrong; None: all are right."""
    payload = read_at(file, entry["offset"] + header["head"], header["payload_bytes"])
    each = (header["payload_bytes"] + 3) // 4
    for quarter in range(4):
        if crc32c(payload[quarter * each:(quarter + 1) * each]) != header["crcs"][quarter]:
            return quarter
    return None


def follows(header):
    """Whether the key is the chain key of the parent and the ids. Images put more into it."""
    key = bytes.fromhex(header["parent"])
    for at in range(0, len(header["ids"]), 16):
        key = hashlib.sha256(key + struct.pack("<16i", *header["ids"][at:at + 16])).digest()
    return key.hex() == header["key"]


class Journal:
    """What the current journal says of the segments, applied in order."""

    def __init__(self):
        self.batches, self.entries = 0, 0
        self.dropped, self.sealed = set(), set()
        self.uses, self.puts = {}, {}
        self.erased = {}  # (segment, half a key): the records of that key up to there are gone

    def read(self, path, number):
        data = path.read_bytes()
        check(data[:BLOCK], b"ArteryJN", path.name)
        at = BLOCK
        while len(data) >= at + BATCH_HEADER:
            count = u32(data, at + 40)
            end = at + BATCH_HEADER + count * ENTRY
            if count > 65536 or end > len(data):
                return
            try:
                check(data[at:end], b"ArteryJB", path.name)
            except Damaged:
                return  # the end: batches are only ever added
            if u64(data, at + 16) != number or u64(data, at + 24) != self.batches + 1:
                return
            for i in range(count):
                self.apply(parse_entry(data, at + BATCH_HEADER + i * ENTRY))
            self.batches += 1
            self.entries += count
            at = blocks(end)

    def apply(self, entry):
        key, segment = entry["key"][:32], entry["segment"]  # half a key is all that it promises
        if entry["what"] == PUT:
            self.puts.setdefault(segment, {})[key] = entry
            self.erased.pop((segment, key), None)
            self.dropped.discard(segment)
            self.uses.pop(key, None)
        elif entry["what"] == ERASE:
            upto = entry["offset"] or EVERYWHERE
            if self.puts.get(segment, {}).get(key, entry)["offset"] <= upto:
                self.puts.get(segment, {}).pop(key, None)
            self.erased[segment, key] = max(upto, self.erased.get((segment, key), 0))
        elif entry["what"] == SEAL:
            self.sealed.add(segment)
        elif entry["what"] == DROP:
            self.puts.pop(segment, None)
            self.dropped.add(segment)
        elif entry["what"] in (TOUCH, GUARANTEE):
            self.uses.setdefault(key, []).append(entry)

    def raise_entry(self, entry):
        for later in self.uses.get(entry["key"][:32], []):
            if later["what"] == GUARANTEE:
                name = "guaranteed_until_s"
                entry[name] = max(entry[name], later[name])
                continue
            for name in ("uses", "last_use_s"):
                entry[name] = max(entry[name], later[name])
            if CLASSES.index(later["class"]) > CLASSES.index(entry["class"]):
                entry["class"] = later["class"]


def by_footer(file, size, number):
    """The records of a sealed segment; None: it has no footer."""
    block = read_at(file, size - BLOCK, BLOCK)
    if size < 2 * BLOCK or block[:8] != b"ArteryFT":
        return None
    check(block, b"ArteryFT", "footer")
    end, count = i64(block, 40), i64(block, 48)
    if u32(block, 16) != number or end + blocks(count * ENTRY) + BLOCK != size:
        raise Damaged("footer: not of this file")
    data = read_at(file, end, count * ENTRY)
    if crc32c(data) != u32(block, 56):
        raise Damaged("footer: wrong CRC-32C of its entries")
    return [parse_entry(data, i * ENTRY) for i in range(count)]


def by_headers(file, size, number, known, everywhere):
    """The records of a segment without a footer, by their own headers. Of an open one: what the
    journal knows, then what follows it without a gap. Of one whose footer is gone (`everywhere`):
    wherever a block begins with a sound header."""
    entries = [] if everywhere else sorted(known.values(), key=lambda e: e["offset"])
    at = max([BLOCK] + [e["offset"] + e["bytes"] for e in entries])
    while at < size:
        try:
            header = parse_header(read_at(file, at, BLOCK), f"record at {at}")
            if at + header["bytes"] > size:
                raise Damaged("ends after the file")
            header.update(segment=number, offset=at, uses=0, last_use_s=header["written_s"])
            if not everywhere and damaged_quarter(file, header, header) is not None:
                return entries  # its write did not end before the process did
        except Damaged:
            if not everywhere:
                return entries
            at += BLOCK
            continue
        entries.append(header)
        at += header["bytes"]
    return entries


def records_of(path, number, journal, trouble):
    """Yields an entry, its header (None: damaged) and what is wrong with it."""
    with path.open("rb") as file:
        size = path.stat().st_size
        first = read_at(file, 0, BLOCK)
        check(first, b"ArterySG", path.name)
        if u32(first, 16) != number:
            raise Damaged(f"{path.name}: it is segment {u32(first, 16)}")
        known = journal.puts.get(number, {})
        is_lost = number in journal.sealed
        try:
            entries = by_footer(file, size, number)
        except Damaged as damage:
            trouble.append(f"{path.name}: {damage}")
            entries, is_lost = None, True
        if entries is None:
            entries = by_headers(file, size, number, known, is_lost)
        for entry in entries:
            what = f"{path.name} at {entry['offset']}"
            try:
                header = parse_header(read_at(file, entry["offset"], BLOCK), what)
                if (header["key"], header["space"]) != (entry["key"], entry["space"]):
                    raise Damaged(f"{what}: another record lies there")
                yield file, entry, header, None
            except Damaged as damage:
                yield file, entry, None, str(damage)


def read_spaces(folder):
    spaces = {}
    path = folder / "spaces.json"
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            space = json.loads(line)
            spaces[space["digest"]] = space
        except (ValueError, KeyError, TypeError):
            continue  # an empty or damaged line costs itself only
    return spaces


def read_super(folder, trouble):
    path = folder / "super"
    data = path.read_bytes() if path.exists() else b""
    best = None
    for at in (0, BLOCK):
        try:
            check(data[at:at + BLOCK], b"ArterySB", "super")
        except Damaged as damage:
            reason = damage
            continue
        slot = {"generation": u64(data, at + 16), "epoch": u64(data, at + 24),
                "journal": u64(data, at + 32), "clean": data[at + 52] == 1}
        if best is None or slot["generation"] > best["generation"]:
            best = slot
    if best is None and not any(folder.glob("seg-*.akv")):
        raise Damaged(f"{folder}: no store ({reason})")
    if best is None:
        trouble.append(str(reason))
    return best or {"journal": None}


def read_journal(folder, named, trouble):
    """The one that the super block names; where that cannot be read, the latest that can."""
    numbers = sorted((int(p.name[8:-4]) for p in folder.glob("journal-*.akj")), reverse=True)
    for number in sorted(numbers, key=lambda n: n != named):
        journal = Journal()
        try:
            journal.read(folder / f"journal-{number:08}.akj", number)
            return journal
        except (Damaged, OSError) as damage:
            trouble.append(str(damage))
    trouble.append("no journal")
    return Journal()


def state_of(entry, journal, now):
    if entry["offset"] <= journal.erased.get((entry["segment"], entry["key"][:32]), 0):
        return "erased"
    ends = entry["last_use_s"] + SECONDS[CLASSES.index(entry["class"])]
    return "live" if max(ends, entry["guaranteed_until_s"]) > now else "expired"


def roots_of(folder, spaces):
    """Digest of a space -> the first parent of requests without a salt; none with encryption."""
    path = folder / "secret"
    if not path.exists() or (folder / "keys.json").exists():
        return {}
    roots = {}
    for digest, space in spaces.items():
        tenant = str(space.get("tenant")).encode()
        text = str(space.get("identity")).encode() + b"|%d:" % len(tenant) + tenant + b"|0:"
        roots[digest] = hmac.new(path.read_bytes(), text, "sha256").hexdigest()
    return roots


def shown(entry, header, spaces, roots):
    out = {name: entry[name] for name in (
        "segment", "offset", "bytes", "kind", "class", "encrypted", "pages", "uses", "key",
        "parent", "written_s", "last_use_s", "guaranteed_until_s", "sequence")}
    if header:
        space = spaces.get(header["space_digest"], {})
        out.update(tenant=space.get("tenant"), model=space.get("model"),
                   payload_bytes=header["payload_bytes"], ids=len(header["ids"]))
        if header["kind"] == "global" and not header["encrypted"]:
            out["key_follows"] = follows(header)
        if header["kind"] == "global" and header["space_digest"] in roots:
            out["begins"] = roots[header["space_digest"]] == entry["parent"]
    return out


def list_folder(folder, fast, now):
    spaces, trouble, counts = read_spaces(folder), [], {}
    top, roots = read_super(folder, trouble), roots_of(folder, spaces)
    journal = read_journal(folder, top["journal"], trouble)
    segments = 0
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(r"seg-(\d{8,})\.akv", path.name)
        if not match or int(match[1]) in journal.dropped:
            continue
        segments += 1
        try:
            for file, entry, header, why in records_of(path, int(match[1]), journal, trouble):
                journal.raise_entry(entry)
                state = state_of(entry, journal, now)
                if state != "erased" and why is None and not fast:
                    quarter = damaged_quarter(file, entry, header)
                    why = None if quarter is None else f"quarter {quarter} of the payload"
                state = "damaged" if why and state != "erased" else state
                counts[state] = counts.get(state, 0) + 1
                line = shown(entry, header, spaces, roots)
                line["state"] = state
                if state == "damaged":
                    line["why"] = why
                print(json.dumps(line))
        except Damaged as damage:
            trouble.append(str(damage))
    print(json.dumps({"folder": str(folder), **top, "journal_batches": journal.batches,
                      "journal_entries": journal.entries, "segments": segments,
                      "spaces": len(spaces), "records": counts, "trouble": trouble}))
    return 1 if trouble or counts.get("damaged") else 0


def extract(folder, key):
    journal = read_journal(folder, read_super(folder, [])["journal"], [])
    for path in sorted(folder.glob("seg-*.akv")):
        number = int(path.name[4:-4])
        for file, entry, header, why in records_of(path, number, journal, []):
            if entry["key"] != key or header is None or header["encrypted"]:
                continue
            if damaged_quarter(file, entry, header) is None:
                offset = entry["offset"] + header["head"]
                sys.stdout.buffer.write(read_at(file, offset, header["payload_bytes"]))
                return 0
    print(f"no sound plain record {key}", file=sys.stderr)
    return 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--fast", action="store_true", help="leave the payloads' checksums alone")
    parser.add_argument("--now", type=float, default=time.time(), help="unix seconds")
    parser.add_argument("--extract", metavar="KEY", help="64 hexadecimal digits")
    options = parser.parse_args()
    try:
        if options.extract:
            return extract(options.folder, options.extract)
        return list_folder(options.folder, options.fast, options.now)
    except (Damaged, OSError) as problem:
        print(problem, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
