package sheaf;

import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Filters.gt;
import static com.mongodb.client.model.Indexes.ascending;
import static com.mongodb.client.model.Indexes.compoundIndex;
import static com.mongodb.client.model.Indexes.descending;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.DuplicateKeyException;
import com.mongodb.ErrorCategory;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoWriteException;
import com.mongodb.client.model.IndexModel;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.Updates;
import java.util.ArrayList;
import java.util.List;
import org.bson.Document;
import org.junit.jupiter.api.Test;

class IndexTest extends Suite {
    List<String> names() {
        List<String> out = new ArrayList<>();
        for (Document d : coll.listIndexes()) out.add(d.getString("name"));
        return out;
    }

    @Test
    void createdListedDropped() {
        assertEquals("a_1", coll.createIndex(ascending("a")));
        assertEquals("a_1", coll.createIndex(ascending("a")));
        assertEquals(List.of("mine", "s_1", "p_1"), coll.createIndexes(List.of(
                new IndexModel(compoundIndex(descending("b"), ascending("c.d")), new IndexOptions().name("mine").unique(true)),
                new IndexModel(ascending("s"), new IndexOptions().sparse(true)),
                new IndexModel(ascending("p"), new IndexOptions().partialFilterExpression(gt("p", 5))))));
        assertEquals(List.of("_id_", "a_1", "mine", "s_1", "p_1"), names());
        coll.dropIndex("mine");
        coll.dropIndex(ascending("a"));
        coll.dropIndexes();
        assertEquals(List.of("_id_"), names());
    }

    @Test
    void conflicts() {
        coll.createIndex(ascending("a"));
        assertEquals("IndexOptionsConflict", refused(MongoCommandException.class, 85, () -> coll.createIndex(ascending("a"), new IndexOptions().name("other"))).getErrorCodeName());
        assertEquals("IndexKeySpecsConflict", refused(MongoCommandException.class, 86, () -> coll.createIndex(ascending("b"), new IndexOptions().name("a_1"))).getErrorCodeName());
        refused(MongoCommandException.class, 86, () -> coll.createIndex(ascending("a"), new IndexOptions().unique(true)));
        refused(MongoCommandException.class, 67, () -> coll.createIndex(new Document("a", 0)));
        refused(MongoCommandException.class, 72, () -> coll.dropIndex("_id_"));
    }

    @Test
    void duplicateKey() {
        coll.createIndex(ascending("email"), new IndexOptions().unique(true));
        coll.insertOne(new Document("_id", 1).append("email", "a@b.c"));
        MongoWriteException e = refused(MongoWriteException.class, 11000, () -> coll.insertOne(new Document("_id", 2).append("email", "a@b.c")));
        assertEquals(ErrorCategory.DUPLICATE_KEY, e.getError().getCategory());
        assertTrue(e.getMessage().contains("index: email_1 dup key: { email: \"a@b.c\" }"), e.getMessage());
        coll.insertOne(new Document("_id", 3).append("email", "other"));
        refused(MongoWriteException.class, 11000, () -> coll.updateOne(eq(3), Updates.set("email", "a@b.c")));
        MongoCommandException c = refused(MongoCommandException.class, 11000, () -> coll.findOneAndUpdate(eq(3), Updates.set("email", "a@b.c")));
        assertEquals("a@b.c", c.getResponse().getDocument("keyValue").getString("email").getValue());
        assertEquals(1, c.getResponse().getDocument("keyPattern").getNumber("email").intValue());
    }

    @Test
    void uniqueOverDuplicates() {
        coll.insertMany(List.of(new Document("k", 1), new Document("k", 1)));
        refused(DuplicateKeyException.class, 11000, () -> coll.createIndex(ascending("k"), new IndexOptions().unique(true)));
        assertEquals(List.of("_id_"), names());
    }

    @Test
    void indexAndScanAgree() {
        numbers(2000);
        coll.createIndex(compoundIndex(ascending("t"), descending("a")));
        for (String filter : List.of("{t: 77}", "{t: {$gt: 100, $lt: 110}}", "{t: {$in: [5, 500]}, a: {$gte: 1}}")) {
            List<Object> byIndex = ids(coll.find(doc(filter)).hint(doc("{t: 1, a: -1}")).sort(doc("{_id: 1}")));
            assertEquals(ids(coll.find(doc(filter)).hint(doc("{$natural: 1}")).sort(doc("{_id: 1}"))), byIndex);
        }
    }
}
