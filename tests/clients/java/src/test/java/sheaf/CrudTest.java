package sheaf;

import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Filters.gt;
import static com.mongodb.client.model.Filters.gte;
import static com.mongodb.client.model.Filters.lt;
import static com.mongodb.client.model.Sorts.ascending;
import static com.mongodb.client.model.Sorts.descending;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoBulkWriteException;
import com.mongodb.client.model.Accumulators;
import com.mongodb.client.model.Aggregates;
import com.mongodb.client.model.BulkWriteOptions;
import com.mongodb.client.model.CountOptions;
import com.mongodb.client.model.DeleteManyModel;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.FindOneAndReplaceOptions;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.InsertManyOptions;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.Projections;
import com.mongodb.client.model.PushOptions;
import com.mongodb.client.model.ReplaceOneModel;
import com.mongodb.client.model.ReplaceOptions;
import com.mongodb.client.model.ReturnDocument;
import com.mongodb.client.model.UpdateManyModel;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.model.Updates;
import com.mongodb.client.result.InsertManyResult;
import com.mongodb.client.result.UpdateResult;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.bson.BsonInt32;
import org.bson.BsonTimestamp;
import org.bson.Document;
import org.bson.conversions.Bson;
import org.bson.types.Binary;
import org.bson.types.Code;
import org.bson.types.Decimal128;
import org.bson.types.MaxKey;
import org.bson.types.MinKey;
import org.bson.types.ObjectId;
import org.junit.jupiter.api.Test;

class CrudTest extends Suite {
    @Test
    void insert() {
        assertTrue(coll.insertOne(new Document("a", 1)).getInsertedId().isObjectId());
        InsertManyResult r = coll.insertMany(List.of(new Document("_id", "x"), new Document("_id", 2)));
        assertEquals(new BsonInt32(2), r.getInsertedIds().get(1));
        assertEquals(3, coll.countDocuments());
    }

    @Test
    void findOptions() {
        numbers(20);
        assertEquals(List.of(13, 9), ids(coll.find(eq("a", 1)).sort(descending("_id")).skip(1).limit(2)));
        assertEquals(List.of(6, 7), ids(coll.find(eq("t", 7))));
        assertNull(coll.find(eq("a", 9)).first());
        coll.createIndex(ascending("a", "_id"));
        assertEquals(List.of(9, 13, 17, 2), ids(coll.find().min(doc("{a: 1, _id: 9}")).max(doc("{a: 2, _id: 6}")).hint(doc("{a: 1, _id: 1}"))));
        assertEquals(List.of(3, 7, 11, 15, 19), ids(coll.find(eq("a", 3)).hintString("a_1__id_1").comment("why").maxTime(10, TimeUnit.SECONDS)));
        assertEquals(List.of(4), ids(coll.find(doc("{$expr: {$eq: ['$_id', '$$n']}}")).let(new Document("n", 4))));
        assertEquals(List.of(19, 18), ids(coll.find().hint(doc("{$natural: -1}")).limit(2)));
        assertEquals(20, ids(coll.find().allowDiskUse(true).noCursorTimeout(true).sort(descending("a"))).size());
        assertNotNull(coll.find().showRecordId(true).first().get("$recordId"));
    }

    @Test
    void projections() {
        coll.insertOne(doc("{_id: 1, a: 1, b: {c: 2, d: 3}, e: [1, 2, 3], f: [{g: 1}, {g: 2}]}"));
        assertEquals(doc("{a: 1}"), project(Projections.fields(Projections.include("a"), Projections.excludeId())));
        assertEquals(doc("{_id: 1, b: {c: 2}}"), project(Projections.include("b.c")));
        assertEquals(doc("{_id: 1, a: 1}"), project(Projections.exclude("b", "e", "f")));
        assertEquals(doc("{_id: 1, a: 1, e: [2, 3]}"), project(Projections.fields(Projections.include("a"), Projections.slice("e", -2))));
        assertEquals(doc("{_id: 1, f: [{g: 2}]}"), project(Projections.elemMatch("f", eq("g", 2))));
        assertEquals(doc("{_id: 1, e: [2]}"), coll.find(gt("e", 1)).projection(Projections.include("e.$")).first());
    }

    Document project(Bson projection) {
        return coll.find().projection(projection).first();
    }

    @Test
    void counting() {
        numbers(20);
        assertEquals(5, coll.countDocuments(eq("a", 1)));
        assertEquals(5, coll.countDocuments(new Document(), new CountOptions().skip(15).limit(10)));
        assertEquals(20, coll.estimatedDocumentCount());
        assertEquals(List.of(0, 1, 2), coll.distinct("a", lt("_id", 3), Integer.class).into(new ArrayList<>()));
    }

    @Test
    void updates() {
        numbers(20);
        UpdateResult r = coll.updateOne(eq(1), Updates.set("a", 1));
        assertEquals(List.of(1L, 0L), List.of(r.getMatchedCount(), r.getModifiedCount()));
        r = coll.updateMany(eq("a", 1), Updates.combine(Updates.inc("n", 5), Updates.unset("t")));
        assertEquals(List.of(5L, 5L), List.of(r.getMatchedCount(), r.getModifiedCount()));
        assertEquals(1, coll.replaceOne(eq(2), new Document("whole", true)).getModifiedCount());
        assertEquals(doc("{_id: 2, whole: true}"), coll.find(eq(2)).first());
        r = coll.updateOne(eq("k", 1), Updates.setOnInsert("v", 1), new UpdateOptions().upsert(true));
        assertTrue(r.getUpsertedId().isObjectId());
        r = coll.replaceOne(eq("made"), new Document("v", 1), new ReplaceOptions().upsert(true));
        assertEquals("made", r.getUpsertedId().asString().getValue());
        assertEquals(0, r.getMatchedCount());
    }

    @Test
    void updateOperators() {
        coll.insertOne(doc("{_id: 1, n: 10, s: 'x', a: [3, 1, 2]}"));
        assertEquals(15, after(Updates.inc("n", 5)).getInteger("n"));
        assertEquals(30, after(Updates.mul("n", 2)).getInteger("n"));
        assertEquals(3, after(Updates.min("n", 3)).getInteger("n"));
        assertEquals(8, after(Updates.max("n", 8)).getInteger("n"));
        assertEquals("x", after(Updates.rename("s", "t")).getString("t"));
        assertEquals(List.of(1, 2, 3, 9), after(Updates.pushEach("a", List.of(9), new PushOptions().sort(1))).getList("a", Integer.class));
        assertEquals(List.of(1, 2, 3, 9, 7), after(Updates.addEachToSet("a", List.of(9, 7))).getList("a", Integer.class));
        assertEquals(List.of(1, 2, 3), after(Updates.pullByFilter(gte("a", 7))).getList("a", Integer.class));
        assertEquals(List.of(2, 3), after(Updates.popFirst("a")).getList("a", Integer.class));
        Document dated = after(Updates.combine(Updates.currentDate("d"), Updates.currentTimestamp("ts")));
        assertTrue(dated.get("d") instanceof Date && dated.get("ts") instanceof BsonTimestamp);
    }

    Document after(Bson update) {
        return coll.findOneAndUpdate(eq(1), update, new FindOneAndUpdateOptions().returnDocument(ReturnDocument.AFTER));
    }

    @Test
    void findOneAnd() {
        coll.insertMany(List.of(doc("{_id: 1, n: 3}"), doc("{_id: 2, n: 1}"), doc("{_id: 3, n: 2}")));
        assertEquals(doc("{_id: 2, n: 1}"), coll.findOneAndUpdate(new Document(), Updates.inc("n", 10), new FindOneAndUpdateOptions().sort(ascending("n"))));
        assertEquals(doc("{_id: 1, r: 1}"), coll.findOneAndReplace(eq(1), doc("{r: 1}"), new FindOneAndReplaceOptions().returnDocument(ReturnDocument.AFTER)));
        assertEquals(doc("{_id: 3, n: 2}"), coll.findOneAndDelete(eq(3)));
        assertNull(coll.findOneAndDelete(eq(3)));
    }

    @Test
    void delete() {
        numbers(20);
        assertEquals(1, coll.deleteOne(eq("a", 1)).getDeletedCount());
        assertEquals(4, coll.deleteMany(eq("a", 1)).getDeletedCount());
        assertEquals(15, coll.deleteMany(new Document()).getDeletedCount());
    }

    @Test
    void bulkWrite() {
        var r = coll.bulkWrite(List.of(
                new InsertOneModel<>(doc("{_id: 1, n: 1}")),
                new InsertOneModel<>(doc("{_id: 2, n: 2}")),
                new UpdateOneModel<>(eq(1), Updates.inc("n", 10)),
                new UpdateManyModel<>(gt("n", 1), Updates.set("big", true)),
                new ReplaceOneModel<>(eq(3), doc("{n: 3}"), new ReplaceOptions().upsert(true)),
                new DeleteOneModel<>(eq(2)),
                new DeleteManyModel<>(eq("n", 99))));
        assertEquals(List.of(2, 3, 3, 1, 1), List.of(r.getInsertedCount(), r.getMatchedCount(), r.getModifiedCount(), r.getDeletedCount(), r.getUpserts().size()));
        assertEquals(new BsonInt32(3), r.getUpserts().get(0).getId());
    }

    @Test
    void bulkWriteErrors() {
        List<InsertOneModel<Document>> writes = new ArrayList<>();
        for (int id : new int[] {1, 1, 2, 2, 3}) writes.add(new InsertOneModel<>(new Document("_id", id)));
        MongoBulkWriteException ordered = assertThrows(MongoBulkWriteException.class, () -> coll.bulkWrite(writes));
        assertEquals(1, ordered.getWriteResult().getInsertedCount());
        assertEquals(List.of(1), ordered.getWriteErrors().stream().map(e -> e.getIndex()).toList());
        coll.drop();
        MongoBulkWriteException unordered = assertThrows(MongoBulkWriteException.class, () -> coll.bulkWrite(writes, new BulkWriteOptions().ordered(false)));
        assertEquals(3, unordered.getWriteResult().getInsertedCount());
        assertEquals(List.of(1, 3), unordered.getWriteErrors().stream().map(e -> e.getIndex()).toList());
        assertEquals(11000, unordered.getWriteErrors().get(0).getCode());
    }

    @Test
    void insertManyPastOneCommand() {
        List<Document> documents = new ArrayList<>();
        for (int i = 0; i <= 100_000; i++) documents.add(new Document("_id", i));
        assertEquals(100_001, coll.insertMany(documents, new InsertManyOptions().ordered(true)).getInsertedIds().size());
        assertEquals(100_001, coll.estimatedDocumentCount());
    }

    @Test
    void aggregate() {
        numbers(20);
        assertEquals(
                List.of(doc("{_id: 0, n: 2}"), doc("{_id: 1, n: 2}")),
                coll.aggregate(List.of(
                        Aggregates.match(lt("_id", 8)), Aggregates.group("$a", Accumulators.sum("n", 1)), Aggregates.sort(ascending("_id")), Aggregates.limit(2)))
                        .batchSize(1).into(new ArrayList<>()));
    }

    @Test
    void types() {
        Document all = new Document("_id", 1)
                .append("double", 1.5).append("int", -7).append("long", 1L << 60).append("decimal", Decimal128.parse("0.1000"))
                .append("string", "grüße 🐿").append("nul", "a\0b").append("object", doc("{a: {b: {}}}")).append("array", Arrays.asList(1, List.of("x"), null))
                .append("bin", new Binary((byte) 0x80, new byte[] {1, 2})).append("oid", new ObjectId("0123456789abcdef01234567"))
                .append("yes", true).append("date", new Date(-1)).append("nil", null).append("code", new Code("f()"))
                .append("ts", new BsonTimestamp(4, 7)).append("min", new MinKey()).append("max", new MaxKey());
        coll.insertOne(all);
        assertEquals(all, coll.find().first());
    }

    @Test
    void largeDocuments() {
        for (int i = 0; i < 4; i++) coll.insertOne(new Document("_id", i).append("b", new byte[15_000_000]));
        assertEquals(List.of(0, 1, 2, 3), ids(coll.find().sort(ascending("_id"))));
        assertThrows(RuntimeException.class, () -> coll.insertOne(new Document("_id", "over").append("b", new byte[16 * 1024 * 1024])));
        assertEquals(4, coll.countDocuments());
    }

    @Test
    void explain() {
        numbers(20);
        coll.createIndex(ascending("a"));
        Document plan = coll.find(eq("a", 2)).explain();
        assertEquals(5, ((Number) plan.getEmbedded(List.of("executionStats", "totalKeysExamined"), Number.class)).intValue());
        assertEquals("a_1", plan.getEmbedded(List.of("queryPlanner", "winningPlan", "inputStage", "indexName"), String.class));
    }
}
