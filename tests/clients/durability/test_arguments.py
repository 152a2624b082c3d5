"""Every argument of every command, replaced by a value of each BSON type: the server always replies and keeps running.

    a valid command (a row of ROWS) ── one value, at any depth, replaced by one of ODD ──> a reply
        ok, or an error with a code and a name that is not an internal one

SHEAF_ARGUMENTS is the share of the replacements that is tried (0.03; 1 for all), SHEAF_ARGUMENTS_SEED which.
"""

import datetime
import json
import os
import random

import bson
from bson import Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from raw import Raw
from servers import server

SHARE = float(os.environ.get("SHEAF_ARGUMENTS", "0.03"))
SEED = int(os.environ.get("SHEAF_ARGUMENTS_SEED", "1"))
WHEN = datetime.datetime(2024, 2, 29)
DEEP = {"$and": [{"a": 1}]}
for _ in range(45):
    DEEP = {"$and": [DEEP]}
ODD = [
    None, True, False, 0, 1, -1, 2**31 - 1, -(2**31), Int64(2**63 - 1), Int64(-(2**63)), 0.5, -0.0, 1e300, float("nan"), float("inf"), float("-inf"),
    Decimal128("NaN"), Decimal128("1E+6144"), Decimal128("-7.5"), "", "x", "$", "$$", "$a", "$$ROOT", "$a..b", "a.$", "a.$[]", "é\0ü", "\uffff" * 3, "y" * 5000,
    {}, {"": 1}, {"$": 1}, {"a": {"$b": 1}}, {"$expr": {"$divide": [1, 0]}}, {"$ref": 1, "$id": 2}, DEEP, [], [[]], [None, 1, "x", {}], [{"a": 1}, {"a": 1}], list(range(300)),
    b"", bson.Binary(b"abc", 4), bson.Binary(b"\0" * 16, 4), bson.Binary(b"\1\2\3\4\5\6\7\x08\x09", 1), bson.Binary(b"\xff\0\0\0", 2), ObjectId("0" * 24), WHEN, bson.DatetimeMS(2**63 - 1), bson.DatetimeMS(-(2**63)),
    Regex("(", "i"), Regex("a" * 300, ""), Regex("^(a+)+$", "x"), Timestamp(0, 0), Timestamp(2**32 - 1, 2**32 - 1), Code("f()"), Code("f()", {"a": 1}), MinKey(), MaxKey(), DBRef("c", 1),
]  # fmt: skip
INTERNAL = {1: "InternalError", 8: "UnknownError"}

FIND = {"find": "c", "filter": {"a": {"$gt": 1}, "s": "x"}, "projection": {"a": 1, "l": {"$slice": [0, 1]}, "m": {"$elemMatch": {"x": 1}}, "e": {"$add": ["$a", 1]}}, "sort": {"a": 1, "t": -1}, "skip": 1, "limit": 2, "batchSize": 1, "singleBatch": True, "hint": {"a": 1}, "comment": "c", "maxTimeMS": 5000, "readConcern": {"level": "local"}, "max": {"a": 9}, "min": {"a": 1}, "returnKey": False, "showRecordId": True, "tailable": False, "noCursorTimeout": False, "awaitData": False, "allowPartialResults": False, "allowDiskUse": True, "let": {"v": 1}, "collation": {"locale": "en", "strength": 2, "caseLevel": False, "caseFirst": "off", "numericOrdering": True, "alternate": "shifted", "maxVariable": "punct", "backwards": False, "normalization": False}}  # fmt: skip
PRIVILEGES = [{"resource": {"db": "args", "collection": "c"}, "actions": ["find"]}]

ROWS = [
    FIND,
    {"find": "capped", "tailable": True, "awaitData": True, "batchSize": 0, "$readPreference": {"mode": "primary"}, "oplogReplay": True, "term": 1},
    {"find": "c", "filter": {"$or": [{"a": {"$in": [1, Regex("x")]}}, {"l": {"$all": [{"$elemMatch": {"x": 1}}], "$size": 2}}, {"$nor": [{"s": {"$type": ["string", 1]}}]}, {"a": {"$mod": [2, 1], "$not": {"$lt": 1}, "$exists": True, "$bitsAllSet": [1]}}, {"$expr": {"$eq": ["$a", "$$v"]}}, {"$jsonSchema": {"required": ["a"], "properties": {"a": {"bsonType": "int", "minimum": 1, "multipleOf": 1}, "l": {"items": [{"type": "object"}], "uniqueItems": True, "maxItems": 3}}, "dependencies": {"a": ["b"]}, "anyOf": [{}]}}, {"$text": {"$search": "x"}}, {"g": {"$near": [0, 0], "$maxDistance": 1}}]}, "let": {"v": 1}},
    {"getMore": Int64(77), "collection": "c", "batchSize": 2, "maxTimeMS": 10, "term": 1, "lastKnownCommittedOpTime": {"ts": Timestamp(1, 1), "t": 1}, "comment": 1},
    {"killCursors": "c", "cursors": [Int64(7), Int64(8)], "comment": 1},
    {"count": "c", "query": {"a": {"$gt": 1}}, "limit": 1, "skip": 1, "hint": "a_1", "maxTimeMS": 100, "readConcern": {"level": "available"}, "collation": {"locale": "en"}, "comment": 1, "fields": {"a": 1}},
    {"distinct": "c", "key": "l.x", "query": {"a": {"$gt": 1}}, "readConcern": {"level": "majority", "afterClusterTime": Timestamp(1, 1)}, "collation": {"locale": "fr"}, "hint": {"a": 1}, "comment": 1, "maxTimeMS": 100},
    {"aggregate": "c", "pipeline": [{"$match": {"a": 1}}, {"$addFields": {"b": {"$add": ["$a", 1]}}}, {"$sort": {"b": 1}}, {"$group": {"_id": "$a", "n": {"$sum": "$b"}, "t": {"$topN": {"n": 2, "sortBy": {"a": 1}, "output": "$b"}}, "p": {"$percentile": {"input": "$a", "p": [0.5], "method": "approximate"}}}}, {"$limit": 3}, {"$skip": 1}], "cursor": {"batchSize": 2}, "allowDiskUse": True, "explain": False, "bypassDocumentValidation": True, "maxTimeMS": 1000, "readConcern": {"level": "snapshot"}, "hint": "a_1", "let": {"v": 1}, "comment": 1, "collation": {"locale": "en"}, "writeConcern": {"w": 1}},
    {"aggregate": "c", "pipeline": [{"$project": {"a": 1, "x": {"$cond": {"if": "$a", "then": 1, "else": "$s"}}, "y": {"$switch": {"branches": [{"case": True, "then": 1}], "default": 2}}, "z": {"$let": {"vars": {"v": 1}, "in": "$$v"}}, "m": {"$map": {"input": "$l", "as": "e", "in": "$$e.x"}}, "f": {"$filter": {"input": "$l", "as": "e", "cond": {"$gt": ["$$e.x", 1]}, "limit": 1}}, "r": {"$reduce": {"input": "$l", "initialValue": 0, "in": {"$add": ["$$value", "$$this.x"]}}}, "zip": {"$zip": {"inputs": ["$l", "$l"], "useLongestLength": True, "defaults": [1, 2]}}, "so": {"$sortArray": {"input": "$l", "sortBy": {"x": 1}}}, "gf": {"$getField": {"field": "a", "input": "$$ROOT"}}, "sf": {"$setField": {"field": "a", "input": "$$ROOT", "value": 1}}}}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$project": {"x": {"$convert": {"input": "$s", "to": "int", "onError": 1, "onNull": 2, "format": "auto"}}, "d": {"$dateToString": {"date": "$t", "format": "%Y", "timezone": "UTC", "onNull": 1}}, "df": {"$dateFromString": {"dateString": "2024-01-01", "format": "%Y-%m-%d", "timezone": "Europe/Paris", "onError": 1, "onNull": 2}}, "dp": {"$dateFromParts": {"year": 2024, "month": 1, "day": 1, "hour": 1, "minute": 1, "second": 1, "millisecond": 1, "timezone": "+01:00"}}, "iw": {"$dateFromParts": {"isoWeekYear": 2024, "isoWeek": 1, "isoDayOfWeek": 1}}, "tp": {"$dateToParts": {"date": "$t", "timezone": "UTC", "iso8601": True}}, "da": {"$dateAdd": {"startDate": "$t", "unit": "month", "amount": 1, "timezone": "UTC"}}, "dd": {"$dateDiff": {"startDate": "$t", "endDate": "$t", "unit": "week", "timezone": "UTC", "startOfWeek": "mon"}}, "dt": {"$dateTrunc": {"date": "$t", "unit": "hour", "binSize": 2, "timezone": "UTC", "startOfWeek": "mon"}}, "re": {"$regexFindAll": {"input": "$s", "regex": "x", "options": "i"}}, "ro": {"$replaceAll": {"input": "$s", "find": "x", "replacement": "y"}}, "tr": {"$trim": {"input": "$s", "chars": "x"}}, "io": {"$indexOfArray": ["$l", 1, 0, 1]}, "ss": {"$substrCP": ["$s", 0, 1]}, "ra": {"$range": [0, 10, 2]}, "sl": {"$slice": ["$l", 0, 1]}, "ro2": {"$round": ["$a", 2]}, "fn": {"$firstN": {"input": "$l", "n": 1}}}}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$lookup": {"from": "d", "localField": "a", "foreignField": "a", "let": {"x": "$a"}, "pipeline": [{"$match": {"$expr": {"$eq": ["$a", "$$x"]}}}], "as": "j"}}, {"$unwind": {"path": "$j", "includeArrayIndex": "i", "preserveNullAndEmptyArrays": True}}, {"$graphLookup": {"from": "d", "startWith": "$a", "connectFromField": "a", "connectToField": "b", "as": "g", "maxDepth": 1, "depthField": "dep", "restrictSearchWithMatch": {"a": 1}}}, {"$replaceRoot": {"newRoot": {"$mergeObjects": ["$j", "$$ROOT"]}}}, {"$replaceWith": "$$ROOT"}, {"$unset": ["a", "b"]}, {"$redact": {"$cond": [True, "$$KEEP", "$$PRUNE"]}}, {"$sample": {"size": 2}}, {"$count": "n"}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$facet": {"a": [{"$bucket": {"groupBy": "$a", "boundaries": [0, 5, 10], "default": "o", "output": {"n": {"$sum": 1}}}}], "b": [{"$bucketAuto": {"groupBy": "$a", "buckets": 3, "granularity": "R5", "output": {"n": {"$push": "$s"}}}}], "c": [{"$sortByCount": "$a"}]}}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$setWindowFields": {"partitionBy": "$s", "sortBy": {"a": 1}, "output": {"r": {"$sum": "$a", "window": {"documents": [-1, "current"]}}, "q": {"$shift": {"output": "$a", "by": 1, "default": 0}}, "e": {"$expMovingAvg": {"input": "$a", "N": 2}}, "d": {"$derivative": {"input": "$a"}, "window": {"range": [-1, 1]}}, "k": {"$rank": {}}, "lo": {"$locf": "$a"}, "li": {"$linearFill": "$a"}}}}, {"$densify": {"field": "a", "partitionByFields": ["s"], "range": {"step": 1, "unit": "day", "bounds": "full"}}}, {"$fill": {"partitionBy": "$s", "partitionByFields": ["s"], "sortBy": {"a": 1}, "output": {"a": {"method": "linear"}, "b": {"value": 1}}}}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$densify": {"field": "t", "range": {"step": 12, "unit": "hour", "bounds": [WHEN, WHEN + datetime.timedelta(days=3)]}}}, {"$limit": 50}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$setWindowFields": {"sortBy": {"t": 1}, "output": {"d": {"$integral": {"input": "$a", "unit": "hour"}, "window": {"range": [-1, 1], "unit": "day"}}, "c": {"$covariancePop": ["$a", "$a"]}, "f": {"$minN": {"input": "$a", "n": 2}, "window": {"documents": ["unbounded", "current"]}}}}}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$unionWith": {"coll": "d", "pipeline": [{"$match": {}}]}}, {"$merge": {"into": {"db": "args", "coll": "merged"}, "on": "_id", "let": {"n": 1}, "whenMatched": [{"$set": {"x": "$$n"}}], "whenNotMatched": "insert"}}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$out": {"db": "args", "coll": "outed", "timeseries": {"timeField": "t", "metaField": "m", "granularity": "hours"}}}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$collStats": {"latencyStats": {"histograms": True}, "storageStats": {"scale": 1}, "count": {}, "queryExecStats": {}}}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$indexStats": {}}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$planCacheStats": {}}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$geoNear": {"near": [0, 0], "distanceField": "d", "key": "g"}}], "cursor": {}},
    {"aggregate": "c", "pipeline": [{"$changeStream": {"fullDocument": "updateLookup", "fullDocumentBeforeChange": "off", "resumeAfter": {"_data": "82"}, "startAfter": {"_data": "82"}, "startAtOperationTime": Timestamp(1, 1), "showExpandedEvents": True}}, {"$match": {"a": 1}}, {"$changeStreamSplitLargeEvent": {}}], "cursor": {}},
    {"aggregate": 1, "pipeline": [{"$changeStream": {"allChangesForCluster": True}}], "cursor": {}, "$db": "admin"},
    {"aggregate": 1, "pipeline": [{"$documents": [{"a": 1}]}, {"$match": {}}], "cursor": {}},
    {"aggregate": 1, "pipeline": [{"$currentOp": {"allUsers": True, "idleConnections": True, "idleCursors": True, "idleSessions": True, "localOps": True, "truncateOps": True}}], "cursor": {}, "$db": "admin"},
    {"aggregate": 1, "pipeline": [{"$listLocalSessions": {"allUsers": True, "users": [{"user": "a", "db": "b"}]}}], "cursor": {}},
    {"aggregate": "system.sessions", "pipeline": [{"$listSessions": {"allUsers": True}}], "cursor": {}, "$db": "config"},
    {"aggregate": "ts", "pipeline": [{"$match": {"t": {"$gt": WHEN}, "m.x": 1}}, {"$group": {"_id": "$m", "n": {"$sum": "$a"}}}, {"$sort": {"t": 1}}], "cursor": {}, "hint": "m_1"},
    {"explain": {"find": "c", "filter": {"a": 1}, "sort": {"a": 1}}, "verbosity": "executionStats", "comment": 1},
    {"explain": {"aggregate": "c", "pipeline": [{"$group": {"_id": "$a"}}], "cursor": {}}, "verbosity": "queryPlanner"},
    {"explain": {"update": "c", "updates": [{"q": {"a": 1}, "u": {"$set": {"b": 1}}, "multi": True}]}, "verbosity": "allPlansExecution"},
    {"insert": "c", "documents": [{"_id": 900, "a": 1}], "ordered": False, "bypassDocumentValidation": False, "maxTimeMS": 100, "comment": 1, "writeConcern": {"w": 1, "j": False, "wtimeout": 10, "fsync": False}, "lsid": {"id": bson.Binary(b"\1" * 16, 4)}, "txnNumber": Int64(1)},
    {"insert": "ts", "documents": [{"_id": 1, "t": WHEN, "m": {"x": 1}, "a": 1}, {"t": WHEN, "a": {"b": [1]}}]},
    {"insert": "capped", "documents": [{"a": 1}]},
    {"insert": "clustered", "documents": [{"_id": 55, "a": 1}]},
    {"insert": "ruled", "documents": [{"_id": 55, "a": 1}]},
    {"update": "c", "updates": [{"q": {"_id": 1}, "u": {"$set": {"b": 1}, "$inc": {"n": 1}, "$push": {"l": {"$each": [1], "$slice": 5, "$sort": 1, "$position": 0}}, "$pull": {"k": {"$gt": 1}}, "$bit": {"n2": {"and": 1}}, "$currentDate": {"cd": {"$type": "timestamp"}}, "$rename": {"r1": "r2"}, "$min": {"mi": 1}}, "upsert": True, "multi": False, "collation": {"locale": "en"}, "arrayFilters": [{"f.x": 1}], "hint": {"_id": 1}, "sort": {"a": 1}}], "ordered": True, "writeConcern": {"w": "majority"}, "let": {"v": 1}, "bypassDocumentValidation": False, "maxTimeMS": 100, "comment": 1},
    {"update": "c", "updates": [{"q": {"_id": 2}, "u": [{"$set": {"b": {"$add": ["$a", "$$k"]}}}, {"$unset": "zz"}, {"$replaceWith": {"$mergeObjects": ["$$ROOT", {"q": 1}]}}], "c": {"k": 1}}]},
    {"update": "ts", "updates": [{"q": {"m.x": 1}, "u": {"$set": {"m.y": 1}}, "multi": True}]},
    {"update": "clustered", "updates": [{"q": {"_id": {"$gt": 1}}, "u": {"a": 2}}]},
    {"delete": "c", "deletes": [{"q": {"_id": 3}, "limit": 1, "collation": {"locale": "en"}, "hint": "_id_"}], "ordered": True, "let": {"v": 1}, "comment": 1, "writeConcern": {"w": 0}, "maxTimeMS": 10},
    {"delete": "ts", "deletes": [{"q": {"m": 77}, "limit": 0}]},
    {"findAndModify": "c", "query": {"_id": 4}, "sort": {"a": 1}, "update": {"$set": {"x": 1}}, "new": True, "fields": {"a": 1}, "upsert": True, "bypassDocumentValidation": True, "arrayFilters": [{"x": 1}], "hint": "_id_", "collation": {"locale": "en"}, "let": {"v": 1}, "maxTimeMS": 100, "writeConcern": {"w": 1}, "comment": 1},
    {"findAndModify": "c", "query": {"_id": 444}, "remove": True},
    {"applyOps": [{"op": "i", "ns": "args.applied", "o": {"_id": 1, "a": 1}, "o2": {"_id": 1}, "ts": Timestamp(1, 1), "t": Int64(1), "v": Int64(2), "wall": WHEN, "ui": bson.Binary(b"\1" * 16, 4)}, {"op": "u", "ns": "args.c", "o": {"$v": 2, "diff": {"u": {"a": 2}, "d": {"b": False}, "i": {"n": 1}, "sl": {"a": True, "u0": 1, "l": 3}}}, "o2": {"_id": 1}, "b": True}, {"op": "d", "ns": "args.c", "o": {"_id": 5}, "b": True}, {"op": "c", "ns": "args.$cmd", "o": {"create": "applied2", "idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"}}}, {"op": "n", "ns": "", "o": {"msg": "x"}}], "alwaysUpsert": True, "allowAtomic": True, "bypassDocumentValidation": False, "comment": 1, "$db": "admin"},
    {"bulkWrite": 1, "ops": [{"insert": 0, "document": {"_id": 321}}, {"update": 0, "filter": {"_id": 1}, "updateMods": {"$set": {"a": 1}}, "multi": False, "upsert": False, "arrayFilters": [], "hint": {"_id": 1}, "constants": {"c": 1}, "collation": {"locale": "en"}, "sort": {"a": 1}}, {"delete": 0, "filter": {"_id": 321}, "multi": False}], "nsInfo": [{"ns": "args.c", "collectionUUID": bson.Binary(b"\1" * 16, 4), "encryptionInformation": {}}], "ordered": True, "bypassDocumentValidation": True, "let": {"v": 1}, "errorsOnly": True, "cursor": {"batchSize": 1}, "comment": 1, "$db": "admin"},
    {"create": "made", "capped": True, "size": 4096, "max": 3, "autoIndexId": True, "validator": {"a": 1}, "validationLevel": "strict", "validationAction": "error", "collation": {"locale": "en"}, "storageEngine": {"wiredTiger": {}}, "indexOptionDefaults": {"storageEngine": {}}, "writeConcern": {"w": 1}, "comment": 1, "changeStreamPreAndPostImages": {"enabled": False}, "idIndex": {"key": {"_id": 1}, "name": "_id_", "v": 2}},
    {"create": "view1", "viewOn": "c", "pipeline": [{"$match": {"a": 1}}], "collation": {"locale": "en"}},
    {"create": "ts2", "timeseries": {"timeField": "t", "metaField": "m", "granularity": "seconds", "bucketMaxSpanSeconds": 3600, "bucketRoundingSeconds": 3600}, "expireAfterSeconds": 100},
    {"create": "cl2", "clusteredIndex": {"key": {"_id": 1}, "unique": True, "name": "n", "v": 2}, "expireAfterSeconds": 100},
    {"collMod": "c", "index": {"keyPattern": {"a": 1}, "name": "a_1", "expireAfterSeconds": 1000000, "hidden": False, "unique": False, "prepareUnique": False}, "validator": {"$jsonSchema": {"required": ["a"]}}, "validationLevel": "moderate", "validationAction": "warn", "viewOn": "d", "pipeline": [], "expireAfterSeconds": 5000, "timeseries": {"granularity": "hours"}, "changeStreamPreAndPostImages": {"enabled": True}, "cappedSize": 4096, "cappedMax": 5, "dryRun": False, "writeConcern": {"w": 1}},
    {"collMod": "capped", "cappedSize": 8192, "cappedMax": 50},
    {"collMod": "ts", "timeseries": {"granularity": "minutes"}, "expireAfterSeconds": 10**9},
    {"collMod": "ruled", "validator": {"a": {"$type": "int"}}, "validationLevel": "strict", "validationAction": "error"},
    {"createIndexes": "d", "indexes": [{"key": {"a": 1, "b.c": -1}, "name": "i1", "unique": True, "sparse": True, "expireAfterSeconds": 100, "hidden": True, "background": True, "v": 2, "partialFilterExpression": {"a": {"$gt": 1}}, "collation": {"locale": "en"}, "storageEngine": {}, "weights": {"a": 1}, "default_language": "x", "language_override": "x", "textIndexVersion": 3, "2dsphereIndexVersion": 3, "bits": 1, "min": 1, "max": 2, "wildcardProjection": {"a": 1}}], "commitQuorum": "majority", "comment": 1, "writeConcern": {"w": 1}, "ignoreUnknownIndexOptions": True},
    {"createIndexes": "d", "indexes": [{"key": {"$**": 1}, "name": "wild", "wildcardProjection": {"a.b": 1, "_id": 0}}]},
    {"createIndexes": "d", "indexes": [{"key": {"h": "hashed", "a": 1}, "name": "hash", "hashVersion": 1}]},
    {"createIndexes": "ts", "indexes": [{"key": {"m.x": 1, "t": -1}, "name": "mt"}]},
    {"dropIndexes": "d", "index": ["i1", "wild"], "comment": 1, "writeConcern": {"w": 1}},
    {"dropIndexes": "d", "index": {"h": "hashed"}},
    {"createSearchIndexes": "d", "indexes": [{"name": "near2", "type": "vectorSearch", "definition": {"fields": [{"type": "vector", "path": "v.w", "numDimensions": 3, "similarity": "cosine", "quantization": "scalar"}, {"type": "filter", "path": "a"}]}}], "comment": 1},
    {"updateSearchIndex": "d", "name": "near", "definition": {"fields": [{"type": "vector", "path": "v", "numDimensions": 2, "similarity": "euclidean"}, {"type": "filter", "path": "a"}]}, "comment": 1},
    {"aggregate": "d", "pipeline": [{"$vectorSearch": {"index": "near", "path": "v", "queryVector": [1, 0.5], "numCandidates": 10, "limit": 5, "filter": {"a": {"$gte": 1}}}}, {"$project": {"a": 1, "score": {"$meta": "vectorSearchScore"}}}], "cursor": {}},
    {"aggregate": "d", "pipeline": [{"$vectorSearch": {"index": "near", "path": "v", "queryVector": bson.Binary(b"\x03\x00\x01\x02", 9), "exact": True, "limit": 5}}, {"$match": {"a": 1}}], "cursor": {}},
    {"aggregate": "d", "pipeline": [{"$listSearchIndexes": {"name": "near"}}], "cursor": {}},
    {"dropSearchIndex": "d", "name": "near", "comment": 1},
    {"listIndexes": "c", "cursor": {"batchSize": 1}, "comment": 1},
    {"listCollections": 1, "filter": {"name": "c"}, "nameOnly": True, "authorizedCollections": True, "cursor": {"batchSize": 2}, "comment": 1},
    {"listDatabases": 1, "filter": {"name": "args"}, "nameOnly": False, "authorizedDatabases": True, "comment": 1, "$db": "admin"},
    {"drop": "made", "writeConcern": {"w": 1}, "comment": 1},
    {"dropDatabase": 1, "writeConcern": {"w": 1}, "comment": 1, "$db": "gone"},
    {"renameCollection": "args.d", "to": "args.d", "dropTarget": False, "writeConcern": {"w": 1}, "comment": 1, "$db": "admin"},
    {"convertToCapped": "made", "size": 4096, "writeConcern": {"w": 1}, "comment": 1},
    {"cloneCollectionAsCapped": "c", "toCollection": "cloned", "size": 4096, "writeConcern": {"w": 1}, "comment": 1},
    {"validate": "c", "full": True, "repair": False, "metadata": False, "checkBSONConformance": True, "background": False, "comment": 1},
    {"compact": "d", "force": True, "freeSpaceTargetMB": 1, "dryRun": False, "comment": 1},
    {"planCacheClear": "c", "query": {"a": 1}, "projection": {"a": 1}, "sort": {"a": 1}, "comment": 1},
    {"planCacheSetFilter": "d", "query": {"a": 1}, "sort": {"a": 1}, "projection": {"a": 1}, "collation": {"locale": "en"}, "indexes": [{"a": 1}, "i1"], "comment": 1},
    {"planCacheListFilters": "d", "comment": 1},
    {"planCacheClearFilters": "d", "query": {"a": 1}, "sort": {"a": 1}, "projection": {}, "collation": {"locale": "en"}, "comment": 1},
    {"ping": 1, "comment": 1},
    {"buildInfo": 1, "comment": 1},
    {"hostInfo": 1, "$db": "admin"},
    {"serverStatus": 1, "repl": 1, "metrics": {"document": 1}, "locks": 0, "tcmalloc": 2, "comment": 1, "$db": "admin"},
    {"collStats": "c", "scale": 1024, "comment": 1},
    {"dbStats": 1, "scale": 1, "freeStorage": 1, "comment": 1},
    {"dbHash": 1, "collections": ["c"], "skipTempCollections": True, "comment": 1},
    {"top": 1, "$db": "admin"},
    {"connPoolStats": 1, "comment": 1, "$db": "admin"},
    {"connectionStatus": 1, "showPrivileges": True},
    {"whatsmyuri": 1},
    {"listCommands": 1},
    {"profile": 0, "slowms": 100, "sampleRate": 1.0, "filter": {"op": "query"}, "comment": 1},
    {"getLog": "global", "$db": "admin"},
    {"getCmdLineOpts": 1, "$db": "admin"},
    {"getParameter": "*", "comment": 1, "$db": "admin"},
    {"getParameter": {"showDetails": False, "allParameters": True}, "$db": "admin"},
    {"setParameter": 1, "quiet": False, "comment": 1, "$db": "admin"},
    {"setParameter": 1, "cursorTimeoutMillis": 600000, "internalQueryMaxBlockingSortMemoryUsageBytes": 104857600, "ttlMonitorSleepSecs": 60, "planCacheSize": "5%", "transactionLifetimeLimitSeconds": 60, "$db": "admin"},
    {"currentOp": 1, "$all": True, "$ownOps": True, "$truncateOps": True, "op": "query", "secs_running": {"$gt": 3}, "comment": 1, "$db": "admin"},
    {"killOp": 1, "op": 123456, "comment": 1, "$db": "admin"},
    {"fsync": 1, "lock": False, "fsyncLockAcquisitionTimeoutMillis": 100, "comment": 1, "$db": "admin"},
    {"fsyncUnlock": 1, "comment": 1, "$db": "admin"},
    {"lockInfo": 1, "includeStorageEngine": True, "comment": 1, "$db": "admin"},
    {"autoCompact": False, "freeSpaceTargetMB": 1, "runOnce": False, "comment": 1, "$db": "admin"},
    {"dataSize": "args.c", "keyPattern": {"_id": 1}, "min": {"_id": 0}, "max": {"_id": 9}, "estimate": False, "comment": 1},
    {"dropConnections": 1, "hostAndPort": ["localhost:1"], "comment": 1, "$db": "admin"},
    {"filemd5": 1, "root": "fs", "partialOk": True, "md5state": b"", "comment": 1},
    {"reIndex": "d", "comment": 1},
    {"validateDBMetadata": 1, "apiParameters": {"version": "1", "strict": True, "deprecationErrors": True}, "db": "args", "collection": "c", "comment": 1},
    {"compactStructuredEncryptionData": "c", "compactionTokens": {"a": b""}, "comment": 1},
    {"configureFailPoint": "failCommand", "mode": {"times": 1}, "data": {"failCommands": ["ping"], "errorCode": 1}, "$db": "admin"},
    {"getDiagnosticData": 1, "comment": 1, "$db": "admin"},
    {"getClusterParameter": ["defaultMaxTimeMS"], "omitInFTDC": False, "comment": 1, "$db": "admin"},
    {"setClusterParameter": {"defaultMaxTimeMS": {"readOperations": 0}}, "comment": 1, "$db": "admin"},
    {"setFeatureCompatibilityVersion": "8.2", "confirm": True, "writeConcern": {"w": 1}, "comment": 1, "$db": "admin"},
    {"setUserWriteBlockMode": 1, "global": False, "comment": 1, "$db": "admin"},
    {"setQuerySettings": {"find": "c", "filter": {"a": 1}, "sort": {"a": 1}, "$db": "args"}, "settings": {"indexHints": [{"ns": {"db": "args", "coll": "c"}, "allowedIndexes": ["a_1", {"a": 1}, {"$natural": 1}]}], "queryFramework": "classic", "reject": False, "comment": "x"}, "comment": 1, "$db": "admin"},
    {"setQuerySettings": "0" * 64, "settings": {"reject": True}, "$db": "admin"},
    {"removeQuerySettings": {"aggregate": "c", "pipeline": [{"$match": {"a": 1}}], "$db": "args"}, "comment": 1, "$db": "admin"},
    {"rotateCertificates": 1, "message": "x", "comment": 1, "$db": "admin"},
    {"appendOplogNote": 1, "data": {"a": 1}, "maxClusterTime": Timestamp(1, 1), "comment": 1, "$db": "admin"},
    {"replSetAbortPrimaryCatchUp": 1, "comment": 1, "$db": "admin"},
    {"replSetFreeze": 0, "comment": 1, "$db": "admin"},
    {"replSetMaintenance": True, "comment": 1, "$db": "admin"},
    {"replSetResizeOplog": 1, "size": 990.0, "minRetentionHours": 1.5, "comment": 1, "$db": "admin"},
    {"replSetStepDown": 0, "secondaryCatchUpPeriodSecs": 0, "force": False, "comment": 1, "$db": "admin"},
    {"replSetSyncFrom": "localhost:1", "comment": 1, "$db": "admin"},
    {"mapReduce": "c", "map": "function() { emit(this.a, 1); }", "reduce": "function(k, v) { return Array.sum(v); }", "finalize": "function(k, v) { return v; }", "out": {"inline": 1}, "query": {"a": 1}, "sort": {"a": 1}, "limit": 2, "scope": {"x": 1}, "jsMode": True, "verbose": True, "collation": {"locale": "en"}, "bypassDocumentValidation": True, "comment": 1},
    {"createBackup": 1, "backupDir": "never/absolute", "comment": 1, "maxTimeMS": 1000, "$db": "admin"},
    {"logRotate": 1, "comment": "x", "$db": "admin"},
    {"hello": 1, "helloOk": True, "topologyVersion": {"processId": ObjectId("0" * 24), "counter": Int64(0)}, "maxAwaitTimeMS": 1, "compression": ["zlib"], "client": {"driver": {"name": "d", "version": "1"}, "os": {"type": "l"}, "application": {"name": "a"}}, "saslSupportedMechs": "admin.a", "speculativeAuthenticate": {"saslStart": 1}, "loadBalanced": False, "comment": 1},
    {"isMaster": 1, "hostInfo": "x"},
    {"logout": 1},
    {"saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": b"n,,n=a,r=x", "autoAuthorize": 1, "options": {"skipEmptyExchange": True}},
    {"saslContinue": 1, "conversationId": 1, "payload": b"c=biws,r=x,p=AAAA"},
    {"authenticate": 1, "mechanism": "MONGODB-X509", "user": "CN=a"},
    {"createUser": "u", "pwd": "secret", "customData": {"a": 1}, "roles": ["read", {"role": "read", "db": "d"}], "authenticationRestrictions": [{"clientSource": ["10.0.0.0/8"], "serverAddress": ["::1"]}], "mechanisms": ["SCRAM-SHA-1"], "digestPassword": True, "writeConcern": {"w": 1}, "comment": 1},
    {"updateUser": "u", "pwd": "secret", "customData": {"a": 1}, "roles": ["read"], "authenticationRestrictions": [{"clientSource": ["10.0.0.0/8"]}], "mechanisms": ["SCRAM-SHA-1"], "digestPassword": True, "comment": 1},
    {"grantRolesToUser": "u", "roles": ["read", {"role": "readWrite", "db": "d"}], "comment": 1},
    {"revokeRolesFromUser": "u", "roles": ["read"], "comment": 1},
    {"usersInfo": {"user": "u", "db": "args"}, "showCredentials": True, "showCustomData": True, "showPrivileges": True, "showAuthenticationRestrictions": True, "filter": {"user": "u"}, "comment": 1},
    {"usersInfo": {"forAllDBs": True}, "filter": {"mechanisms": "SCRAM-SHA-1"}},
    {"createRole": "r", "privileges": PRIVILEGES, "roles": ["read"], "authenticationRestrictions": [{"clientSource": ["10.0.0.0/8"]}], "writeConcern": {"w": 1}, "comment": 1},
    {"updateRole": "r", "privileges": PRIVILEGES, "roles": ["read"], "authenticationRestrictions": [], "comment": 1},
    {"grantPrivilegesToRole": "r", "privileges": PRIVILEGES, "comment": 1},
    {"revokePrivilegesFromRole": "r", "privileges": PRIVILEGES, "comment": 1},
    {"grantRolesToRole": "r", "roles": ["readWrite"], "comment": 1},
    {"revokeRolesFromRole": "r", "roles": ["readWrite"], "comment": 1},
    {"rolesInfo": ["r", {"role": "read", "db": "args"}], "showPrivileges": "asUserFragment", "showAuthenticationRestrictions": True, "showBuiltinRoles": True, "comment": 1},
    {"invalidateUserCache": 1, "$db": "admin"},
    {"dropUser": "u", "comment": 1},
    {"dropRole": "r", "comment": 1},
    {"dropAllUsersFromDatabase": 1, "comment": 1},
    {"dropAllRolesFromDatabase": 1, "comment": 1},
    {"replSetInitiate": {"_id": "rs0", "version": 1, "members": [{"_id": 0, "host": "localhost:1", "priority": 1, "votes": 1, "arbiterOnly": False, "tags": {"a": "b"}}], "settings": {"chainingAllowed": True}}, "$db": "admin"},
    {"replSetReconfig": {"_id": "rs0", "version": 2, "members": [{"_id": 0, "host": "localhost:1"}]}, "force": True, "maxTimeMS": 10, "$db": "admin"},
    {"replSetGetConfig": 1, "commitmentStatus": True, "comment": 1, "$db": "admin"},
    {"replSetGetStatus": 1, "initialSync": 1, "$db": "admin"},
    {"getDefaultRWConcern": 1, "inMemory": True, "$db": "admin"},
    {"setDefaultRWConcern": 1, "defaultReadConcern": {"level": "local"}, "defaultWriteConcern": {"w": 1}, "writeConcern": {"w": 1}, "$db": "admin"},
    {"commitTransaction": 1, "lsid": {"id": bson.Binary(b"\2" * 16, 4)}, "txnNumber": Int64(3), "autocommit": False, "recoveryToken": {}, "coordinator": False, "writeConcern": {"w": 1}, "$db": "admin"},
    {"abortTransaction": 1, "lsid": {"id": bson.Binary(b"\2" * 16, 4)}, "txnNumber": Int64(3), "autocommit": False, "$db": "admin"},
    {"find": "c", "filter": {}, "lsid": {"id": bson.Binary(b"\3" * 16, 4)}, "txnNumber": Int64(4), "autocommit": False, "startTransaction": True, "readConcern": {"level": "snapshot", "atClusterTime": Timestamp(1, 1)}, "$clusterTime": {"clusterTime": Timestamp(1, 1), "signature": {"hash": b"\0" * 20, "keyId": Int64(0)}}},
    {"startSession": 1},
    {"refreshSessions": [{"id": bson.Binary(b"\1" * 16, 4)}]},
    {"endSessions": [{"id": bson.Binary(b"\1" * 16, 4)}]},
    {"killSessions": [{"id": bson.Binary(b"\1" * 16, 4), "uid": b"\0" * 32}]},
    {"killAllSessions": [{"user": "a", "db": "b"}]},
    {"killAllSessionsByPattern": [{"lsid": {"id": bson.Binary(b"\1" * 16, 4), "uid": b"\0" * 32}, "uid": b"\0" * 32, "users": [{"user": "a", "db": "b"}]}]},
    {"shutdown": 1, "nosuch": 1, "force": False, "timeoutSecs": 1, "$db": "admin"},
]  # fmt: skip


def places(value, path=()):
    """The paths of all values in a document, arrays' elements too."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def replaced(value, path, odd):
    if not path:
        return odd
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], odd)
    return copy


def renamed(value, path, name):
    """The document with the last field of the path under another name, or twice for an element."""
    if len(path) > 1:
        copy = dict(value) if isinstance(value, dict) else list(value)
        copy[path[0]] = renamed(copy[path[0]], path[1:], name)
        return copy
    if isinstance(value, list):
        return [*value, *value]
    return {name if k == path[0] else k: v for k, v in value.items()}


def requests(row):
    """The row unchanged, and with each value replaced in turn. A valid `shutdown` is not sent."""
    if "shutdown" not in row:
        yield row
    for path in places(row):
        if path == ("$db",):
            continue
        for odd in ODD:
            if path == ("shutdown",) or (row.keys() >= {"shutdown"} and path == ("nosuch",)) or "shutdown" not in row:
                yield replaced(row, path, odd)
        if len(path) > 1 or "shutdown" not in row:
            for name in ["", "nosuch", "$nosuch", "a.b"]:
                if len(path) > 1 or path[0] != next(iter(row)):
                    yield renamed(row, path, name)


def resident(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) << 10


def prepare(raw):
    def do(command):
        reply = raw.command(command | {"$db": "args"})
        assert reply["ok"] == 1, (command, reply)

    # A transaction started by a row would block later commands.
    do({"killAllSessions": []})
    do({"dropDatabase": 1})
    do({"create": "capped", "capped": True, "size": 4096})
    do({"create": "ts", "timeseries": {"timeField": "t", "metaField": "m"}})
    do({"create": "clustered", "clusteredIndex": {"key": {"_id": 1}, "unique": True}})
    do({"create": "ruled", "validator": {"$jsonSchema": {"properties": {"a": {"bsonType": "int"}}}}})
    for name in ("c", "d", "clustered"):
        do({"insert": name, "documents": [{"_id": i, "a": i % 7, "b": i % 3, "s": "xyz" * (i % 3), "t": WHEN + datetime.timedelta(hours=i), "l": [{"x": i}, {"x": i % 5}], "h": i, "v": [i, 1.5]} for i in range(40)]})
    do({"insert": "ts", "documents": [{"_id": i, "t": WHEN + datetime.timedelta(minutes=i), "m": {"x": i % 2}, "a": i} for i in range(40)]})
    do({"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a_1"}, {"key": {"l.x": 1}, "name": "lx"}, {"key": {"s": 1, "a": -1}, "name": "sa"}]})
    near = {"fields": [{"type": "vector", "path": "v", "numDimensions": 2, "similarity": "euclidean"}, {"type": "filter", "path": "a"}]}
    do({"createSearchIndexes": "d", "indexes": [{"name": "near", "type": "vectorSearch", "definition": near}]})


def internal(reply):
    """Errors of the reply that no request may cause."""
    found = [reply, *reply.get("writeErrors", ()), *([reply["writeConcernError"]] if "writeConcernError" in reply else ())]
    found += [op for op in reply.get("cursor", {}).get("firstBatch", ()) if isinstance(op, dict) and "code" in op and "errmsg" in op]
    return [e for e in found if e.get("code") in INTERNAL or (e.get("ok") == 0 and not ("code" in e and e.get("errmsg")))]


def run_all(tmp_path, sequence, rows):
    """Sends a sample of the requests; returns how many were sent."""
    rng, sent, wrong = random.Random(SEED), 0, []
    with server(tmp_path / "data") as s:
        raw = Raw(s.port)
        prepare(raw)
        before = resident(s.process.pid)
        for row in rows:
            for request in sequence(row):
                if request is not row and rng.random() > SHARE:
                    continue
                request = request if "$db" in request else request | {"$db": "args"}
                try:
                    bson.encode(request)
                except bson.errors.InvalidDocument:
                    continue  # a name with a zero byte
                sent += 1
                try:
                    reply = raw.command(request)
                except (ConnectionError, TimeoutError) as error:
                    wrong.append((str(error), request))
                    assert s.process.poll() is None, (request, s.log())
                    raw.close()
                    raw = Raw(s.port)
                    continue
                for error in internal(reply):
                    wrong.append((error, request))
            # Remove what the row created or dropped before the next.
            raw.close()
            raw = Raw(s.port)
            prepare(raw)
        assert resident(s.process.pid) < before + (600 << 20)
        raw.close()
        s.stop()
        with open(s.log_path) as log:
            wrong += [line for line in log if json.loads(line)["msg"] == "Panic"]
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(str(w)[:1500] for w in wrong[:40])
    return sent


def test_every_argument(tmp_path):
    print(run_all(tmp_path, requests, ROWS), "commands")


def test_every_command_has_a_row(tmp_path):
    with server(tmp_path / "data") as s, Raw(s.port) as raw:
        commands = set(raw.command({"listCommands": 1, "$db": "admin"})["commands"])
    rows = {next(iter(row)) for row in ROWS}
    assert commands - rows == set()


NAMES = os.path.join(os.path.dirname(__file__), "../../../docs/compat/mongodb-names.txt")


def operators():
    """Section -> the names in it that begin with $, as COMPAT.md lists them."""
    sections, names = {}, None
    with open(NAMES) as f:
        for line in f:
            if line.startswith("["):
                names = sections.setdefault(line.strip("[]\n"), [])
            elif line.startswith("$"):
                name = line.split("|")[0].split()[0]
                if name not in names:
                    names.append(name)
    return sections


def values():
    yield from ODD
    for odd in ODD:
        yield [odd]
        yield [odd, odd]
        yield [1, odd]
        yield [odd, 1, 1]
        yield {"input": odd}
        yield {"a": odd}


def applied(section):
    """Functions of an operator of this section and a value that make commands with them."""
    find = lambda f: {"find": "c", "filter": f, "limit": 3}  # noqa: E731
    pipe = lambda *stages: {"aggregate": "c", "pipeline": [*stages, {"$limit": 3}], "cursor": {}}  # noqa: E731
    return {
        "query operators": [lambda n, v: find({"a": {n: v}}), lambda n, v: find({n: v}), lambda n, v: find({"l": {"$elemMatch": {"x": {n: v}}}}), lambda n, v: find({"a": {"$not": {n: v}}})],
        "update operators": [
            lambda n, v: {"update": "c", "updates": [{"q": {"_id": 5}, "u": {n: v}}]},
            lambda n, v: {"update": "c", "updates": [{"q": {"_id": 6}, "u": {n: {"l": v}}}]},
            lambda n, v: {"update": "c", "updates": [{"q": {"_id": 7}, "u": {n: {"new.x": v}}, "upsert": True}]},
            lambda n, v: {"update": "c", "updates": [{"q": {"_id": 8}, "u": {"$push": {"l": {"$each": [1, 2], n: v}}}}]},
        ],
        "aggregation stages": [lambda n, v: {"aggregate": "c", "pipeline": [{n: v}], "cursor": {}}, lambda n, v: {"aggregate": 1, "pipeline": [{n: v}], "cursor": {}}, lambda n, v: pipe({"$facet": {"f": [{n: v}]}})],
        "accumulators of $group": [lambda n, v: pipe({"$group": {"_id": "$s", "v": {n: v}}}), lambda n, v: pipe({"$group": {"_id": None, "v": {n: {"input": "$a", "n": v, "output": v, "sortBy": v, "p": v, "method": v}}}})],
        "window operators": [lambda n, v: pipe({"$setWindowFields": {"sortBy": {"a": 1}, "output": {"v": {n: v}}}}), lambda n, v: pipe({"$setWindowFields": {"sortBy": {"t": 1}, "output": {"v": {n: "$a", "window": {"documents": v}}}}})],
        "expressions": [lambda n, v: pipe({"$project": {"v": {n: v}}}), lambda n, v: pipe({"$match": {"$expr": {n: ["$l", v]}}}), lambda n, v: pipe({"$project": {"v": {n: [{"$literal": v}, "$s", "$a"]}}})],
        "projections": [lambda n, v: {"find": "c", "projection": {"l": {n: v}}, "limit": 3}],
    }.get(section, [])


def test_every_operator(tmp_path):
    def rows(names_of):
        for section, names in names_of.items():
            for name in names:
                yield section, name

    def sequence(row):
        section, name = row
        for form in applied(section):
            for value in values():
                yield form(name, value)

    sections = operators()
    assert {s for s in sections if applied(s)} >= {"query operators", "update operators", "aggregation stages", "expressions"}
    print(run_all(tmp_path, sequence, list(rows({s: n for s, n in sections.items() if applied(s)}))), "commands")
