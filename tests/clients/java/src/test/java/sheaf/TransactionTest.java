package sheaf;

import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Sorts.ascending;
import static com.mongodb.client.model.Updates.inc;
import static com.mongodb.client.model.Updates.set;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.ClientSessionOptions;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoWriteException;
import com.mongodb.ReadConcern;
import com.mongodb.TransactionOptions;
import com.mongodb.WriteConcern;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoCursor;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.UpdateOneModel;
import java.util.ArrayList;
import java.util.List;
import org.bson.BsonDocument;
import org.bson.Document;
import org.junit.jupiter.api.Test;

/** Sessions and transactions on the plain standalone server, with no set-up step. */
class TransactionTest extends Suite {
    /** A second empty collection for this test. */
    MongoCollection<Document> other() {
        MongoCollection<Document> c = db.getCollection(coll.getNamespace().getCollectionName() + "_b");
        c.drop();
        return c;
    }

    static int n(MongoCollection<Document> c, int id) {
        return c.find(eq("_id", id)).first().getInteger("n");
    }

    @Test
    void twoCollectionsCommitAsOne() {
        MongoCollection<Document> b = other();
        coll.insertOne(doc("{_id: 1, n: 5}"));
        b.insertOne(doc("{_id: 1, n: 0}"));
        try (ClientSession s = client.startSession()) {
            s.startTransaction(TransactionOptions.builder().readConcern(ReadConcern.SNAPSHOT).writeConcern(WriteConcern.MAJORITY).build());
            coll.updateOne(s, eq("_id", 1), inc("n", -5));
            b.bulkWrite(s, List.of(new UpdateOneModel<>(eq("_id", 1), inc("n", 5)), new InsertOneModel<>(doc("{_id: 2}"))));
            assertEquals(doc("{_id: 2}"), b.findOneAndUpdate(s, eq("_id", 2), set("n", 7)));
            assertEquals(List.of(doc("{_id: 1, n: 5}"), doc("{_id: 2, n: 7}")), b.aggregate(s, List.of(doc("{$sort: {_id: 1}}"))).into(new ArrayList<>()));
            assertEquals(List.of(5, 0, 1L), List.of(n(coll, 1), n(b, 1), b.countDocuments()));
            s.commitTransaction();
            s.commitTransaction(); // repeated: the transaction stays committed
        }
        assertEquals(List.of(0, 5, 7), List.of(n(coll, 1), n(b, 1), n(b, 2)));
    }

    @Test
    void abortLeavesNothing() {
        MongoCollection<Document> b = other();
        coll.insertOne(doc("{_id: 1}"));
        try (ClientSession s = client.startSession()) {
            s.startTransaction();
            coll.deleteOne(s, eq("_id", 1));
            b.insertOne(s, doc("{_id: 1}"));
            assertEquals(0, coll.countDocuments(s));
            s.abortTransaction();
        }
        assertEquals(List.of(1L, 0L), List.of(coll.countDocuments(), b.countDocuments()));
    }

    @Test
    void failedStatementEndsTheTransaction() {
        coll.insertOne(doc("{_id: 1}"));
        try (ClientSession s = client.startSession()) {
            s.startTransaction();
            coll.insertOne(s, doc("{_id: 2}"));
            refused(MongoWriteException.class, 11000, () -> coll.insertOne(s, doc("{_id: 1}")));
            MongoCommandException e = refused(MongoCommandException.class, 251, () -> coll.find(s).first());
            assertTrue(e.hasErrorLabel(MongoException.TRANSIENT_TRANSACTION_ERROR_LABEL));
            s.abortTransaction();
        }
        assertEquals(1, coll.countDocuments());
    }

    @Test
    void withTransactionRetriesAfterAConflict() {
        coll.insertOne(doc("{_id: 1, n: 0}"));
        List<MongoException> failures = new ArrayList<>();
        try (ClientSession s = client.startSession()) {
            String answer = s.withTransaction(() -> {
                int n = coll.find(s, eq("_id", 1)).first().getInteger("n");
                if (failures.isEmpty()) coll.updateOne(eq("_id", 1), inc("n", 10)); // another client, after this snapshot
                try {
                    coll.updateOne(s, eq("_id", 1), set("n", n + 1));
                } catch (MongoException e) {
                    failures.add(e);
                    throw e;
                }
                return "done";
            });
            assertEquals("done", answer);
        }
        assertEquals(1, failures.size());
        assertEquals(112, failures.get(0).getCode());
        assertTrue(failures.get(0).hasErrorLabel(MongoException.TRANSIENT_TRANSACTION_ERROR_LABEL));
        assertEquals(11, n(coll, 1));
    }

    @Test
    void cursorOfSeveralBatches() {
        numbers(250);
        List<Object> found = new ArrayList<>();
        try (ClientSession s = client.startSession()) {
            s.startTransaction();
            try (MongoCursor<Document> cursor = coll.find(s).sort(ascending("_id")).batchSize(100).cursor()) {
                found.add(cursor.next().get("_id"));
                coll.deleteMany(new Document()); // another client, after the snapshot
                while (cursor.hasNext()) found.add(cursor.next().get("_id"));
            }
            s.commitTransaction();
        }
        List<Object> all = new ArrayList<>();
        for (int i = 0; i < 250; i++) all.add(i);
        assertEquals(all, found);
        assertEquals(0, coll.countDocuments());
    }

    @Test
    void causallyConsistentSessions() {
        Sent sent = new Sent();
        ClientSessionOptions causal = ClientSessionOptions.builder().causallyConsistent(true).build();
        try (MongoClient c = MongoClients.create(settings().addCommandListener(sent).build());
                ClientSession writer = c.startSession(causal);
                ClientSession reader = c.startSession(causal)) {
            MongoCollection<Document> mine = c.getDatabase("java_suite").getCollection(coll.getNamespace().getCollectionName());
            mine.insertOne(writer, doc("{_id: 1}"));
            assertNotNull(writer.getOperationTime());
            assertNotNull(writer.getClusterTime());
            reader.advanceClusterTime(writer.getClusterTime());
            reader.advanceOperationTime(writer.getOperationTime());
            assertNotNull(mine.find(reader, eq("_id", 1)).first());
            BsonDocument find = sent.named("find").get(0);
            assertEquals(writer.getOperationTime(), find.getDocument("readConcern").getTimestamp("afterClusterTime"));
            assertTrue(reader.getOperationTime().compareTo(writer.getOperationTime()) >= 0);
        }
    }

    @Test
    void snapshotSessionReadsTheSameTwice() {
        coll.insertMany(List.of(doc("{_id: 1, n: 1}"), doc("{_id: 2, n: 2}")));
        try (ClientSession s = client.startSession(ClientSessionOptions.builder().snapshot(true).build())) {
            List<Document> first = coll.find(s).sort(ascending("_id")).into(new ArrayList<>());
            assertEquals(List.of(doc("{_id: 1, n: 1}"), doc("{_id: 2, n: 2}")), first);
            coll.updateOne(eq("_id", 1), set("n", 100));
            coll.insertOne(doc("{_id: 3, n: 3}"));
            assertEquals(first, coll.find(s).sort(ascending("_id")).into(new ArrayList<>()));
            assertEquals(3, coll.aggregate(s, List.of(doc("{$group: {_id: null, n: {$sum: '$n'}}}"))).first().getInteger("n"));
            assertEquals(List.of(1, 2), coll.distinct(s, "n", Integer.class).into(new ArrayList<>()).stream().sorted().toList());
        }
        assertEquals(3, coll.countDocuments());
    }

    /** Retryable writes are for replica sets: the driver omits txnNumber. */
    @Test
    void noNumberIsSentToAStandalone() {
        Sent sent = new Sent();
        try (MongoClient c = MongoClients.create(settings().addCommandListener(sent).build())) {
            c.getDatabase("java_suite").getCollection(coll.getNamespace().getCollectionName()).insertOne(doc("{_id: 1}"));
        }
        assertEquals(List.of(false), sent.numbered("insert"));
        assertFalse(sent.named("insert").get(0).getDocument("lsid").isEmpty());
    }
}
