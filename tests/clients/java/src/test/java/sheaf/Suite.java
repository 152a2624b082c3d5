package sheaf;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.MongoException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.bson.Document;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.function.Executable;

/** Base of every test class: one client, and an empty collection named after the test. */
abstract class Suite {
    static final String URI = System.getenv("SHEAF_URI");

    static MongoClient client;
    MongoDatabase db;
    MongoCollection<Document> coll;

    @BeforeAll
    static void connect() {
        client = MongoClients.create(settings().build());
    }

    @AfterAll
    static void disconnect() {
        client.close();
    }

    @BeforeEach
    void empty(TestInfo info) {
        db = client.getDatabase("java_suite");
        String name = getClass().getSimpleName() + "_" + info.getDisplayName().replaceAll("\\W", "_");
        coll = db.getCollection(name);
        coll.drop();
    }

    static MongoClientSettings.Builder settings() {
        return MongoClientSettings.builder()
                .applyConnectionString(new ConnectionString(URI))
                .applyToClusterSettings(c -> c.serverSelectionTimeout(5, TimeUnit.SECONDS));
    }

    /** The call must throw exactly this kind of exception with this code. */
    static <T extends MongoException> T refused(Class<T> type, int code, Executable call) {
        T e = assertThrows(type, call);
        assertEquals(code, e.getCode(), e.getMessage());
        return e;
    }

    static Document doc(String json) {
        return Document.parse(json);
    }

    static List<Object> ids(Iterable<Document> documents) {
        List<Object> out = new ArrayList<>();
        for (Document d : documents) out.add(d.get("_id"));
        return out;
    }

    /** Documents {_id: i, a: i % 4, t: [i, i + 1]}. */
    MongoCollection<Document> numbers(int n) {
        List<Document> documents = new ArrayList<>();
        for (int i = 0; i < n; i++) documents.add(new Document("_id", i).append("a", i % 4).append("t", List.of(i, i + 1)));
        coll.insertMany(documents);
        return coll;
    }
}
