package sheaf;

import static com.mongodb.client.model.Filters.eq;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoExecutionTimeoutException;
import com.mongodb.MongoNamespace;
import com.mongodb.MongoQueryException;
import com.mongodb.MongoWriteException;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.RenameCollectionOptions;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.bson.Document;
import org.junit.jupiter.api.Test;

class ErrorTest extends Suite {
    static void says(MongoException e, String text) {
        assertTrue(e.getMessage().contains(text), e.getMessage());
    }

    @Test
    void unknownNames() {
        coll.insertOne(new Document("a", 1));
        MongoCommandException e = refused(MongoCommandException.class, 59, () -> db.runCommand(new Document("frobnicate", 1)));
        assertEquals("CommandNotFound", e.getErrorCodeName());
        says(e, "no such command: 'frobnicate'");
        says(refused(MongoQueryException.class, 2, () -> coll.find(doc("{a: {$frob: 1}}")).first()), "unknown operator: $frob");
        says(refused(MongoQueryException.class, 2, () -> coll.find(doc("{$frob: 1}")).first()), "unknown top level operator: $frob");
        says(refused(MongoWriteException.class, 9, () -> coll.updateOne(new Document(), doc("{$frob: {a: 1}}"))), "nknown modifier: $frob");
        says(refused(MongoCommandException.class, 40324, () -> coll.aggregate(List.of(doc("{$frob: 1}"))).first()), "Unrecognized pipeline stage name: '$frob'");
        says(refused(MongoCommandException.class, 40415, () -> db.runCommand(new Document("find", "c").append("frob", 1))), "frob");
    }

    @Test
    void invalidUpdates() {
        Document before = doc("{_id: 1, n: 1, s: 'x'}");
        coll.insertOne(before);
        Map<String, Integer> cases = Map.of(
                "{$set: {n: 1}, $inc: {n: 1}}", 40, "{$inc: {s: 1}}", 14, "{$push: {n: 1}}", 2, "{$set: {_id: 2}}", 66, "{$set: {'n.x': 2}}", 28);
        cases.forEach((update, code) -> refused(MongoWriteException.class, code, () -> coll.updateOne(eq(1), doc(update))));
        assertEquals(before, coll.find().first());
    }

    @Test
    void maxTime() {
        List<Document> documents = new ArrayList<>();
        for (int i = 0; i < 20_000; i++) documents.add(new Document("_id", i).append("t", "a".repeat(40)));
        coll.insertMany(documents);
        List<Document> alternatives = new ArrayList<>();
        // All patterns differ, since equal ones would be evaluated once.
        for (int i = 0; i < 60; i++) alternatives.add(doc("{t: {$regex: '[xyz]+" + i + "$'}}"));
        refused(MongoExecutionTimeoutException.class, 50, () -> coll.find(new Document("$or", alternatives)).maxTime(1, TimeUnit.MILLISECONDS).first());
    }

    @Test
    void collections() {
        MongoDatabase admin = client.getDatabase("java_admin");
        admin.drop();
        admin.createCollection("made");
        admin.getCollection("filled").insertOne(new Document("_id", 1));
        refused(MongoCommandException.class, 48, () -> admin.getCollection("filled").renameCollection(new MongoNamespace("java_admin.made")));
        admin.getCollection("filled").renameCollection(new MongoNamespace("java_admin.made"), new RenameCollectionOptions().dropTarget(true));
        assertEquals(List.of("made"), admin.listCollectionNames().into(new ArrayList<>()));
        refused(MongoCommandException.class, 26, () -> admin.getCollection("absent").renameCollection(new MongoNamespace("java_admin.x")));
        assertTrue(client.listDatabaseNames().into(new ArrayList<>()).contains("java_admin"));
        admin.drop();
        assertTrue(!client.listDatabaseNames().into(new ArrayList<>()).contains("java_admin"));
    }

    @Test
    void theConnectionRemainsUsable() {
        for (int i = 0; i < 50; i++) refused(MongoCommandException.class, 59, () -> db.runCommand(new Document("frobnicate", 1)));
        assertEquals(0, coll.countDocuments());
    }
}
