package sheaf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.ClientSessionOptions;
import com.mongodb.MongoCompressor;
import com.mongodb.MongoException;
import com.mongodb.ReadConcern;
import com.mongodb.ReadPreference;
import com.mongodb.WriteConcern;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.connection.ClusterType;
import com.mongodb.event.CommandListener;
import com.mongodb.event.CommandStartedEvent;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.bson.BsonDocument;
import org.bson.Document;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ConnectTest extends Suite {
    Document admin(String command) {
        return client.getDatabase("admin").runCommand(new Document(command, 1));
    }

    @Test
    void hello() {
        Document h = admin("hello");
        assertTrue(h.getBoolean("isWritablePrimary"));
        assertEquals(16 * 1024 * 1024, h.getInteger("maxBsonObjectSize"));
        assertEquals(48_000_000, h.getInteger("maxMessageSizeBytes"));
        assertEquals(100_000, h.getInteger("maxWriteBatchSize"));
        assertFalse(h.getBoolean("readOnly"));
    }

    @Test
    void pingAndTopology() {
        assertEquals(1.0, ((Number) admin("ping").get("ok")).doubleValue());
        assertEquals(ClusterType.STANDALONE, client.getClusterDescription().getType());
    }

    @Test
    void sessionsAreSentOnlyIfAnnounced() {
        List<BsonDocument> finds = Collections.synchronizedList(new ArrayList<>());
        CommandListener listener = new CommandListener() {
            @Override
            public void commandStarted(CommandStartedEvent e) {
                if (e.getCommandName().equals("find")) finds.add(e.getCommand().clone());
            }
        };
        try (MongoClient c = MongoClients.create(settings().addCommandListener(listener).build())) {
            c.getDatabase("java_suite").getCollection("x").find().first();
        }
        assertEquals(1, finds.size());
        assertEquals(admin("hello").containsKey("logicalSessionTimeoutMinutes"), finds.get(0).containsKey("lsid"));
    }

    @Test
    void explicitSession() {
        try (ClientSession session = client.startSession(ClientSessionOptions.builder().causallyConsistent(false).build())) {
            coll.insertOne(session, new Document("_id", 1));
            assertEquals(1, coll.countDocuments(session));
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"snappy", "zlib", "zstd"})
    void compression(String name) {
        MongoCompressor compressor = switch (name) {
            case "snappy" -> MongoCompressor.createSnappyCompressor();
            case "zlib" -> MongoCompressor.createZlibCompressor();
            default -> MongoCompressor.createZstdCompressor();
        };
        long before = unpacked(name);
        String text = "compressible ".repeat(20_000);
        try (MongoClient c = MongoClients.create(settings().compressorList(List.of(compressor)).build())) {
            MongoCollection<Document> compressed = c.getDatabase("java_suite").getCollection("compressed_" + name);
            compressed.drop();
            compressed.insertOne(new Document("_id", 1).append("text", text));
            assertEquals(text, compressed.find().first().getString("text"));
        }
        assertTrue(unpacked(name) - before > text.length());
    }

    long unpacked(String compressor) {
        return ((Number) admin("serverStatus").getEmbedded(List.of("network", "compression", compressor, "decompressor", "bytesOut"), Number.class)).longValue();
    }

    @Test
    void eightThreads() throws Exception {
        coll.insertOne(new Document("_id", "counter").append("n", 0));
        ExecutorService pool = Executors.newFixedThreadPool(8);
        List<Future<?>> work = new ArrayList<>();
        for (int who = 0; who < 8; who++) {
            String prefix = who + "-";
            work.add(pool.submit(() -> {
                for (int i = 0; i < 100; i++) {
                    coll.insertOne(new Document("_id", prefix + i));
                    coll.updateOne(doc("{_id: 'counter'}"), doc("{$inc: {n: 1}}"));
                }
            }));
        }
        for (Future<?> f : work) f.get();
        pool.shutdown();
        assertEquals(801, coll.countDocuments());
        assertEquals(800, coll.find(doc("{_id: 'counter'}")).first().getInteger("n"));
    }

    @Test
    void concerns() {
        coll.withWriteConcern(WriteConcern.JOURNALED).insertOne(new Document("_id", 1));
        coll.withWriteConcern(WriteConcern.MAJORITY).insertOne(new Document("_id", 2));
        assertFalse(coll.withWriteConcern(WriteConcern.UNACKNOWLEDGED).insertOne(new Document("_id", 3)).wasAcknowledged());
        assertEquals(1, coll.withReadConcern(ReadConcern.MAJORITY).countDocuments(doc("{_id: 1}")));
        assertEquals(1, coll.withReadPreference(ReadPreference.secondaryPreferred()).countDocuments(doc("{_id: 2}")));
        refused(MongoException.class, 2, () -> coll.withWriteConcern(new WriteConcern(3)).insertOne(new Document()));
    }
}
