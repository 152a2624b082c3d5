package sheaf;

import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Updates.inc;
import static com.mongodb.client.model.Updates.set;
import static com.mongodb.client.model.bulk.ClientBulkWriteOptions.clientBulkWriteOptions;
import static com.mongodb.client.model.bulk.ClientNamespacedWriteModel.deleteMany;
import static com.mongodb.client.model.bulk.ClientNamespacedWriteModel.deleteOne;
import static com.mongodb.client.model.bulk.ClientNamespacedWriteModel.insertOne;
import static com.mongodb.client.model.bulk.ClientNamespacedWriteModel.replaceOne;
import static com.mongodb.client.model.bulk.ClientNamespacedWriteModel.updateMany;
import static com.mongodb.client.model.bulk.ClientNamespacedWriteModel.updateOne;
import static com.mongodb.client.model.bulk.ClientReplaceOneOptions.clientReplaceOneOptions;
import static com.mongodb.client.model.bulk.ClientUpdateOneOptions.clientUpdateOneOptions;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.mongodb.ClientBulkWriteException;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoNamespace;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.bulk.ClientBulkWriteResult;
import com.mongodb.client.model.bulk.ClientNamespacedWriteModel;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.bson.BsonInt32;
import org.bson.Document;
import org.junit.jupiter.api.Test;

/** MongoClient.bulkWrite: one bulkWrite command over several collections and databases. */
class ClientBulkWriteTest extends Suite {
    /** An empty collection of the same name in another database. */
    MongoCollection<Document> other() {
        MongoCollection<Document> c = client.getDatabase("java_suite_other").getCollection(coll.getNamespace().getCollectionName());
        c.drop();
        return c;
    }

    static List<Long> sums(ClientBulkWriteResult r) {
        return List.of(r.getInsertedCount(), r.getUpsertedCount(), r.getMatchedCount(), r.getModifiedCount(), r.getDeletedCount());
    }

    @Test
    void totalsAndDetails() {
        MongoNamespace a = coll.getNamespace(), b = other().getNamespace();
        ClientBulkWriteResult r = client.bulkWrite(
                List.of(
                        insertOne(a, doc("{_id: 1, n: 1}")),
                        insertOne(b, doc("{_id: 1}")),
                        updateOne(a, eq("_id", 1), inc("n", 10)),
                        updateMany(a, new Document(), set("n", 11)),
                        replaceOne(b, eq("_id", 3), doc("{n: 3}"), clientReplaceOneOptions().upsert(true)),
                        deleteOne(a, eq("_id", 2)),
                        deleteMany(b, new Document())),
                clientBulkWriteOptions().verboseResults(true));
        assertEquals(List.of(2L, 1L, 2L, 1L, 2L), sums(r));
        ClientBulkWriteResult.VerboseResults details = r.getVerboseResults().orElseThrow();
        assertEquals(new BsonInt32(3), details.getUpdateResults().get(4).getUpsertedId().orElseThrow());
        assertEquals(0L, details.getUpdateResults().get(3).getModifiedCount());
        assertEquals(2L, details.getDeleteResults().get(6).getDeletedCount());
        assertEquals(List.of(doc("{_id: 1, n: 11}")), coll.find().into(new ArrayList<>()));
    }

    @Test
    void errorsKeepTheirIndexes() {
        MongoNamespace a = coll.getNamespace();
        MongoCollection<Document> other = other();
        List<ClientNamespacedWriteModel> clashing = new ArrayList<>();
        for (int id : List.of(1, 1, 2, 2, 3)) clashing.add(insertOne(a, new Document("_id", id)));
        clashing.add(insertOne(other.getNamespace(), doc("{_id: 1}")));
        ClientBulkWriteException e = assertThrows(ClientBulkWriteException.class, () -> client.bulkWrite(clashing));
        assertEquals(Set.of(1), e.getWriteErrors().keySet());
        assertEquals(11000, e.getWriteErrors().get(1).getCode());
        assertEquals(1L, e.getPartialResult().orElseThrow().getInsertedCount());
        coll.drop();
        e = assertThrows(ClientBulkWriteException.class, () -> client.bulkWrite(clashing, clientBulkWriteOptions().ordered(false)));
        assertEquals(Set.of(1, 3), e.getWriteErrors().keySet());
        assertEquals(4L, e.getPartialResult().orElseThrow().getInsertedCount());
        assertEquals(1L, other.countDocuments());
    }

    @Test
    void inATransaction() {
        MongoNamespace a = coll.getNamespace();
        MongoCollection<Document> other = other();
        MongoNamespace b = other.getNamespace();
        try (ClientSession s = client.startSession()) {
            s.withTransaction(() -> {
                client.bulkWrite(s, List.of(insertOne(a, doc("{_id: 1}")), insertOne(b, doc("{_id: 1}"))));
                assertEquals(0L, other.countDocuments());
                return null;
            });
            assertEquals(1L, other.countDocuments());
            s.startTransaction();
            assertThrows(ClientBulkWriteException.class, () -> client.bulkWrite(s, List.of(insertOne(a, doc("{_id: 2}")), insertOne(b, doc("{_id: 1}")))));
            refused(MongoCommandException.class, 251, s::commitTransaction);
        }
        assertEquals(List.of(1), ids(coll.find()));
    }

    @Test
    void severalBatchesOfResults() {
        MongoNamespace a = coll.getNamespace();
        List<ClientNamespacedWriteModel> upserts = new ArrayList<>();
        for (int i = 0; i < 30; i++) upserts.add(updateOne(a, eq("_id", "x".repeat(1_000_000 + i)), inc("n", 1), clientUpdateOneOptions().upsert(true)));
        ClientBulkWriteResult r = client.bulkWrite(upserts, clientBulkWriteOptions().verboseResults(true));
        assertEquals(List.of(0L, 30L, 0L, 0L, 0L), sums(r));
        r.getVerboseResults().orElseThrow().getUpdateResults().forEach(
                (i, one) -> assertEquals(1_000_000 + i, one.getUpsertedId().orElseThrow().asString().getValue().length()));
    }
}
