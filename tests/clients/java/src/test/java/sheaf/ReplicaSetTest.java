package sheaf;

import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Sorts.ascending;
import static com.mongodb.client.model.Updates.inc;
import static com.mongodb.client.model.Updates.set;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.ConnectionString;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoClientSettings;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.DeleteOptions;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.UpdateOptions;
import java.io.File;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.bson.BsonDocument;
import org.bson.Document;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A replica set of one member: retryable writes are on, and a lost reply causes no duplicate write. */
class ReplicaSetTest {
    @TempDir
    static Path folder;

    static Process server;
    static int port;

    @BeforeAll
    static void initiate() throws Exception {
        try (ServerSocket free = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = free.getLocalPort();
        }
        server = new ProcessBuilder(System.getenv("SHEAF_BINARY"), "--dbpath", folder.toString(), "--port", "" + port, "--nounixsocket", "--replSet", "rs0")
                .redirectErrorStream(true).redirectOutput(new File("/dev/null")).start();
        Runtime.getRuntime().addShutdownHook(new Thread(server::destroyForcibly));
        try (MongoClient c = connect(port, "directConnection=true", new Sent())) {
            Document member = new Document("_id", 0).append("host", "127.0.0.1:" + port);
            c.getDatabase("admin").runCommand(new Document("replSetInitiate", new Document("_id", "rs0").append("members", List.of(member))));
            for (int tries = 0; !c.getDatabase("admin").runCommand(new Document("hello", 1)).getBoolean("isWritablePrimary"); tries++) {
                assertTrue(tries < 500, "no primary");
                Thread.sleep(20);
            }
        }
    }

    @AfterAll
    static void stop() throws InterruptedException {
        server.destroyForcibly().waitFor();
    }

    static MongoClient connect(int port, String how, Sent sent) {
        return MongoClients.create(MongoClientSettings.builder()
                .applyConnectionString(new ConnectionString("mongodb://127.0.0.1:" + port + "/?" + how))
                .applyToClusterSettings(c -> c.serverSelectionTimeout(20, TimeUnit.SECONDS))
                .addCommandListener(sent).build());
    }

    static MongoCollection<Document> empty(MongoClient c, String name) {
        MongoCollection<Document> coll = c.getDatabase("java_set").getCollection(name);
        coll.drop();
        return coll;
    }

    @ParameterizedTest
    @ValueSource(strings = {"directConnection=true", "replicaSet=rs0"})
    void writesCarryNumbers(String how) {
        Sent sent = new Sent();
        try (MongoClient client = connect(port, how, sent)) {
            MongoCollection<Document> c = empty(client, "numbered");
            c.insertOne(Document.parse("{_id: 1, n: 0}"));
            c.insertMany(List.of(Document.parse("{_id: 2}"), Document.parse("{_id: 3}")));
            c.updateOne(eq("_id", 1), inc("n", 1));
            assertEquals(1, c.findOneAndUpdate(eq("_id", 1), inc("n", 1)).getInteger("n"));
            assertEquals(Document.parse("{_id: 2}"), c.findOneAndReplace(eq("_id", 2), Document.parse("{r: 1}")));
            assertEquals(Document.parse("{_id: 3}"), c.findOneAndDelete(eq("_id", 3)));
            c.bulkWrite(List.of(new InsertOneModel<>(Document.parse("{_id: 4}")), new UpdateOneModel<>(eq("_id", 4), set("b", 1)), new DeleteOneModel<>(eq("_id", 2))));
            // Writes to many documents are not retryable: the driver sends no number.
            c.updateMany(new Document(), set("m", 1));
            assertEquals(List.of(Document.parse("{_id: 1, n: 2, m: 1}"), Document.parse("{_id: 4, b: 1, m: 1}")), c.find().sort(ascending("_id")).into(new ArrayList<>()));
        }
        assertEquals(List.of(true, true, true), sent.numbered("insert"));
        assertEquals(List.of(true, true, false), sent.numbered("update"));
        assertEquals(List.of(true, true, true), sent.numbered("findAndModify"));
        assertEquals(List.of(true), sent.numbered("delete"));
    }

    @Test
    void aLostReplyCausesNoDuplicateWrite() throws IOException {
        Sent sent = new Sent();
        try (LossyProxy between = new LossyProxy(port); MongoClient client = connect(between.port(), "directConnection=true", sent)) {
            MongoCollection<Document> c = empty(client, "once");
            between.lose("first-of-all");
            c.insertOne(Document.parse("{_id: 'first-of-all', n: 0}"));
            between.lose("inc-by-update");
            assertEquals(1, c.updateOne(eq("_id", "first-of-all"), inc("n", 1), new UpdateOptions().comment("inc-by-update")).getModifiedCount());
            between.lose("inc-by-modify");
            Document before = c.findOneAndUpdate(eq("_id", "first-of-all"), inc("n", 1), new FindOneAndUpdateOptions().comment("inc-by-modify"));
            assertEquals(Document.parse("{_id: 'first-of-all', n: 1}"), before);
            c.insertMany(List.of(Document.parse("{_id: 2, k: 1}"), Document.parse("{_id: 3, k: 1}")));
            between.lose("one-of-two");
            assertEquals(1, c.deleteOne(eq("k", 1), new DeleteOptions().comment("one-of-two")).getDeletedCount());
            assertEquals(2, c.find(eq("_id", "first-of-all")).first().getInteger("n"));
            assertEquals(1, c.countDocuments(eq("k", 1)));
            assertEquals(4, between.lost());
        }
        for (String name : List.of("insert", "update", "findAndModify", "delete")) {
            List<BsonDocument> found = sent.named(name);
            assertEquals(name.equals("insert") ? 3 : 2, found.size(), name);
            assertEquals(found.get(0).get("lsid"), found.get(1).get("lsid"));
            assertEquals(found.get(0).get("txnNumber"), found.get(1).get("txnNumber"));
        }
    }

    @Test
    void aLostReplyToACommit() throws IOException {
        Sent sent = new Sent();
        try (LossyProxy between = new LossyProxy(port); MongoClient client = connect(between.port(), "directConnection=true", sent)) {
            MongoCollection<Document> c = empty(client, "committed");
            c.insertOne(Document.parse("{_id: 1, n: 0}"));
            try (ClientSession s = client.startSession()) {
                s.withTransaction(() -> {
                    c.updateOne(s, eq("_id", 1), inc("n", 1));
                    between.lose("commitTransaction");
                    return null;
                });
            }
            assertEquals(1, c.find().first().getInteger("n"));
            assertEquals(1, between.lost());
        }
        assertEquals(2, sent.named("commitTransaction").size());
    }

    @Test
    void querySettings() {
        try (MongoClient c = connect(port, "directConnection=true", new Sent())) {
            MongoCollection<Document> coll = c.getDatabase("java_settings").getCollection("c");
            coll.drop();
            for (int n = 0; n < 50; n++) coll.insertOne(new Document("_id", n).append("a", 1).append("b", n));
            coll.createIndex(ascending("a"));
            coll.createIndex(ascending("b"));
            Document filter = new Document("a", 1).append("b", 7);
            Document shape = new Document("find", "c").append("filter", filter).append("$db", "java_settings");
            Document ns = new Document("db", "java_settings").append("coll", "c");
            Document hints = new Document("ns", ns).append("allowedIndexes", List.of("a_1"));
            assertEquals("b_1", index(coll.find(filter).explain()));
            Document reply = c.getDatabase("admin").runCommand(new Document("setQuerySettings", shape)
                    .append("settings", new Document("indexHints", hints)));
            assertEquals("a_1", index(coll.find(filter).explain()));
            List<Document> listed = c.getDatabase("admin").aggregate(List.of(new Document("$querySettings", new Document())))
                    .into(new ArrayList<>());
            assertEquals(List.of(reply.get("queryShapeHash")), listed.stream().map(entry -> entry.get("queryShapeHash")).toList());
            c.getDatabase("admin").runCommand(new Document("setQuerySettings", reply.get("queryShapeHash"))
                    .append("settings", new Document("reject", true)));
            MongoCommandException refused = assertThrows(MongoCommandException.class, () -> found(coll, filter));
            assertEquals(411, refused.getErrorCode());
            c.getDatabase("admin").runCommand(new Document("removeQuerySettings", shape));
            assertEquals(List.of(7), found(coll, filter).stream().map(doc -> doc.get("_id")).toList());
            assertEquals("b_1", index(coll.find(filter).explain()));
        }
    }

    @Test
    void queryStats() {
        try (MongoClient c = connect(port, "directConnection=true", new Sent())) {
            MongoCollection<Document> coll = c.getDatabase("java_stats").getCollection("c");
            coll.insertMany(List.of(new Document("n", 1), new Document("n", 2)));
            Document limit = new Document("setParameter", 1);
            c.getDatabase("admin").runCommand(new Document(limit).append("internalQueryStatsRateLimit", -1));
            for (int n = 1; n <= 3; n++) found(coll, new Document("n", n));
            c.getDatabase("admin").runCommand(new Document(limit).append("internalQueryStatsRateLimit", 0));
            List<Document> entries = c.getDatabase("admin").aggregate(List.of(new Document("$queryStats", new Document()),
                    new Document("$match", new Document("key.queryShape.cmdNs.db", "java_stats")))).into(new ArrayList<>());
            assertEquals(1, entries.size());
            assertEquals(3L, entries.get(0).getEmbedded(List.of("metrics", "execCount"), Long.class));
            assertEquals(2L, entries.get(0).getEmbedded(List.of("metrics", "docsReturned", "sum"), Long.class));
            Document stages = new Document("$listMqlEntities", new Document("entityType", "aggregationStages"));
            assertTrue(c.getDatabase("admin").aggregate(List.of(stages)).into(new ArrayList<>()).contains(new Document("name", "$match")));
        }
    }

    /** All results: {@code first} has a limit, and thereby another shape. */
    private static List<Document> found(MongoCollection<Document> coll, Document filter) {
        return coll.find(filter).into(new ArrayList<>());
    }

    /** The index of a plan that fetches what it finds there. */
    private static String index(Document explain) {
        return explain.getEmbedded(List.of("queryPlanner", "winningPlan", "inputStage", "indexName"), String.class);
    }
}
