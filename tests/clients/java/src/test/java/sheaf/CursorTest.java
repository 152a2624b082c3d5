package sheaf;

import static com.mongodb.client.model.Sorts.ascending;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import com.mongodb.MongoCommandException;
import com.mongodb.MongoCursorNotFoundException;
import com.mongodb.client.MongoCursor;
import java.util.ArrayList;
import java.util.List;
import org.bson.Document;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class CursorTest extends Suite {
    @ParameterizedTest
    @ValueSource(ints = {2, 100, 333, 1000, 5000})
    void batchSizes(int size) {
        numbers(1000);
        List<Object> all = new ArrayList<>();
        for (int i = 0; i < 1000; i++) all.add(i);
        assertEquals(all, ids(coll.find().sort(ascending("_id")).batchSize(size)));
        assertEquals(all.subList(10, 260), ids(coll.find().sort(ascending("_id")).skip(10).limit(250).batchSize(size)));
    }

    @Test
    void closingKillsTheCursor() {
        numbers(100);
        MongoCursor<Document> cursor = coll.find().batchSize(2).cursor();
        cursor.next();
        long id = cursor.getServerCursor().getId();
        cursor.close();
        refused(MongoCommandException.class, 43, () -> db.runCommand(new Document("getMore", id).append("collection", coll.getNamespace().getCollectionName())));
    }

    @Test
    void lostCursor() {
        numbers(100);
        try (MongoCursor<Document> cursor = coll.find().batchSize(2).cursor()) {
            assertNotNull(cursor.getServerCursor());
            db.runCommand(new Document("killCursors", coll.getNamespace().getCollectionName()).append("cursors", List.of(cursor.getServerCursor().getId())));
            refused(MongoCursorNotFoundException.class, 43, () -> {
                while (cursor.hasNext()) cursor.next();
            });
        }
    }

    @Test
    void oneBatchLeavesNoCursor() {
        numbers(100);
        try (MongoCursor<Document> cursor = coll.find().limit(50).cursor()) {
            assertNull(cursor.getServerCursor());
        }
    }
}
