package sheaf;

import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Updates.combine;
import static com.mongodb.client.model.Updates.set;
import static com.mongodb.client.model.Updates.unset;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.mongodb.MongoCommandException;
import com.mongodb.client.ChangeStreamIterable;
import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import com.mongodb.client.model.changestream.FullDocument;
import com.mongodb.client.model.changestream.OperationType;
import java.util.ArrayList;
import java.util.List;
import org.bson.BsonDocument;
import org.bson.Document;
import org.junit.jupiter.api.Test;

/** Change streams on the plain standalone server. */
class ChangeStreamTest extends Suite {
    /** Opens the stream, writes, returns the next n events and closes. */
    static List<ChangeStreamDocument<Document>> events(ChangeStreamIterable<Document> stream, int n, Runnable write) {
        List<ChangeStreamDocument<Document>> found = new ArrayList<>();
        try (MongoChangeStreamCursor<ChangeStreamDocument<Document>> cursor = stream.cursor()) {
            write.run();
            while (found.size() < n) found.add(cursor.next());
        }
        return found;
    }

    static List<Integer> keys(List<ChangeStreamDocument<Document>> events) {
        return events.stream().map(e -> e.getDocumentKey().getInt32("_id").getValue()).toList();
    }

    static List<OperationType> types(List<ChangeStreamDocument<Document>> events) {
        return events.stream().map(ChangeStreamDocument::getOperationType).toList();
    }

    @Test
    void everyWriteOfACollection() {
        List<ChangeStreamDocument<Document>> found = events(coll.watch(), 4, () -> {
            coll.insertOne(doc("{_id: 1, a: 1, b: 2}"));
            coll.updateOne(eq("_id", 1), combine(set("a", 5), unset("b")));
            coll.replaceOne(eq("_id", 1), doc("{c: 3}"));
            coll.deleteOne(eq("_id", 1));
        });
        assertEquals(List.of(OperationType.INSERT, OperationType.UPDATE, OperationType.REPLACE, OperationType.DELETE), types(found));
        for (ChangeStreamDocument<Document> e : found) {
            assertEquals(coll.getNamespace(), e.getNamespace());
            assertEquals(BsonDocument.parse("{_id: 1}"), e.getDocumentKey());
            assertNotNull(e.getClusterTime());
            assertNotNull(e.getWallTime());
        }
        assertEquals(doc("{_id: 1, a: 1, b: 2}"), found.get(0).getFullDocument());
        assertEquals(BsonDocument.parse("{a: 5}"), found.get(1).getUpdateDescription().getUpdatedFields());
        assertEquals(List.of("b"), found.get(1).getUpdateDescription().getRemovedFields());
        assertNull(found.get(1).getFullDocument());
        assertEquals(doc("{_id: 1, c: 3}"), found.get(2).getFullDocument());
        assertNull(found.get(3).getFullDocument());
    }

    @Test
    void aDatabaseAndTheDeployment() {
        MongoCollection<Document> b = db.getCollection(coll.getNamespace().getCollectionName() + "_b");
        b.drop();
        assertEquals(List.of(1, 2), keys(events(db.watch(), 2, () -> {
            coll.insertOne(doc("{_id: 1}"));
            b.insertOne(doc("{_id: 2}"));
        })));
        assertEquals(List.of(3), keys(events(client.watch(List.of(doc("{$match: {'ns.db': 'java_suite'}}"))), 1, () -> coll.insertOne(doc("{_id: 3}")))));
    }

    @Test
    void resumeAfterAnEvent() {
        BsonDocument token = events(coll.watch(), 1, () -> coll.insertMany(List.of(doc("{_id: 0}"), doc("{_id: 1}"), doc("{_id: 2}")))).get(0).getResumeToken();
        assertEquals(List.of(1, 2), keys(events(coll.watch().resumeAfter(token), 2, () -> {})));
        assertEquals(List.of(1, 2), keys(events(coll.watch().startAfter(token), 2, () -> {})));
        refused(MongoCommandException.class, 9, () -> coll.watch().resumeAfter(BsonDocument.parse("{_data: 'no token'}")).cursor());
    }

    @Test
    void driverResumesWhenItsCursorIsLost() {
        try (MongoChangeStreamCursor<ChangeStreamDocument<Document>> cursor = coll.watch().cursor()) {
            coll.insertOne(doc("{_id: 1}"));
            assertEquals(1, cursor.next().getDocumentKey().getInt32("_id").getValue());
            coll.insertOne(doc("{_id: 2}"));
            db.runCommand(new Document("killCursors", coll.getNamespace().getCollectionName()).append("cursors", List.of(cursor.getServerCursor().getId())));
            assertEquals(2, cursor.next().getDocumentKey().getInt32("_id").getValue());
        }
    }

    @Test
    void aPipeline() {
        List<Document> pipeline = List.of(doc("{$match: {operationType: 'insert', 'fullDocument.n': {$gte: 2}}}"), doc("{$set: {'fullDocument.twice': {$multiply: ['$fullDocument.n', 2]}}}"));
        List<ChangeStreamDocument<Document>> found = events(coll.watch(pipeline), 2, () -> {
            for (int n = 0; n < 4; n++) coll.insertOne(new Document("_id", n).append("n", n));
        });
        assertEquals(List.of(4, 6), found.stream().map(e -> e.getFullDocument().getInteger("twice")).toList());
    }

    @Test
    void updateLookup() {
        coll.insertOne(doc("{_id: 1, a: 1}"));
        ChangeStreamDocument<Document> e = events(coll.watch().fullDocument(FullDocument.UPDATE_LOOKUP), 1, () -> coll.updateOne(eq("_id", 1), set("b", 2))).get(0);
        assertEquals(BsonDocument.parse("{b: 2}"), e.getUpdateDescription().getUpdatedFields());
        assertEquals(doc("{_id: 1, a: 1, b: 2}"), e.getFullDocument());
    }

    @Test
    void droppingTheCollectionInvalidates() {
        coll.insertOne(doc("{_id: 1}"));
        try (MongoChangeStreamCursor<ChangeStreamDocument<Document>> cursor = coll.watch().cursor()) {
            coll.drop();
            assertEquals(OperationType.DROP, cursor.next().getOperationType());
            assertEquals(OperationType.INVALIDATE, cursor.next().getOperationType());
            assertFalse(cursor.getServerCursor() != null && cursor.tryNext() != null);
        }
    }
}
