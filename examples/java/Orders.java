import static com.mongodb.client.model.Filters.and;
import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Filters.gte;
import static com.mongodb.client.model.Filters.lt;
import static com.mongodb.client.model.Indexes.ascending;
import static com.mongodb.client.model.Indexes.compoundIndex;
import static com.mongodb.client.model.Indexes.descending;
import static com.mongodb.client.model.Updates.inc;

import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import java.time.LocalDate;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.bson.Document;
import org.bson.conversions.Bson;

/** Orders in a document database: an index on an array, pages, a transaction, a change stream. */
public class Orders {
    public static void main(String[] args) {
        String uri = System.getenv().getOrDefault("SHEAF_URI", "mongodb://127.0.0.1:27017/");
        try (MongoClient client = MongoClients.create(uri)) {
            MongoDatabase db = client.getDatabase("examples");
            db.drop();
            MongoCollection<Document> orders = db.getCollection("orders");
            insert(orders);
            page(orders);
            sales(client, orders, db.getCollection("stock"));
            watch(orders);
        }
    }

    static Document line(int product, int quantity) {
        return new Document("product", product).append("quantity", quantity);
    }

    static Document order(int number, List<Document> lines) {
        LocalDate day = LocalDate.of(2026, 1, 1).plusDays(number);
        return new Document("_id", number)
                .append("country", List.of("CH", "FR", "IT").get(number % 3))
                .append("at", Date.from(day.atStartOfDay(ZoneOffset.UTC).toInstant()))
                .append("lines", lines);
    }

    static Document order(int number) {
        return order(number, List.of(line(number % 7, 1), line((number + 3) % 7, 2)));
    }

    static void insert(MongoCollection<Document> orders) {
        List<Document> documents = IntStream.rangeClosed(1, 60).mapToObj(Orders::order).toList();
        var result = orders.insertMany(documents);
        System.out.println("inserted " + result.getInsertedIds().size() + " orders");

        // One index serves the filter on the array's elements and the order of the results.
        Bson keys = compoundIndex(ascending("country", "lines.product"), descending("at"));
        System.out.println("index " + orders.createIndex(keys));
    }

    /** The next page begins where the last one ended: no page costs more than the first. */
    static void page(MongoCollection<Document> orders) {
        Bson query = and(eq("country", "CH"), eq("lines.product", 5));
        Bson rest = query;
        for (int page = 1; ; page++) {
            List<Document> found =
                    orders.find(rest).sort(descending("at")).limit(4).into(new ArrayList<>());
            if (found.isEmpty()) return;
            String numbers = found.stream()
                    .map(document -> document.getInteger("_id").toString())
                    .collect(Collectors.joining(" "));
            System.out.println("page " + page + ": " + numbers);
            rest = and(query, lt("at", found.get(found.size() - 1).getDate("at")));
        }
    }

    static class OutOfStock extends RuntimeException {}

    static void sales(
            MongoClient client, MongoCollection<Document> orders, MongoCollection<Document> stock) {
        stock.insertOne(new Document("_id", 5).append("left", 10));
        try (ClientSession session = client.startSession()) {
            for (int[] sale : new int[][] {{61, 3}, {62, 9}}) {
                String outcome = "sold";
                try {
                    // Runs it again when it meets another transaction's write.
                    session.withTransaction(() -> sell(session, orders, stock, sale[0], 5, sale[1]));
                } catch (OutOfStock e) {
                    outcome = "cannot sell";
                }
                int left = stock.find(eq(5)).first().getInteger("left");
                System.out.println(outcome + " " + sale[1] + " of product 5, " + left + " left");
            }
        }
        System.out.println("orders: " + orders.countDocuments());
    }

    /** Inserts the order and takes from the stock, both or neither. */
    static boolean sell(
            ClientSession session,
            MongoCollection<Document> orders,
            MongoCollection<Document> stock,
            int number,
            int product,
            int quantity) {
        orders.insertOne(session, order(number, List.of(line(product, quantity))));
        Bson enough = and(eq(product), gte("left", quantity));
        var taken = stock.updateOne(session, enough, inc("left", -quantity));
        // Ends the transaction: the order is not inserted either.
        if (taken.getMatchedCount() == 0) throw new OutOfStock();
        return true;
    }

    static void watch(MongoCollection<Document> orders) {
        try (var changes = orders.watch().cursor()) {
            orders.insertOne(order(62));
            var change = changes.next();
            int number = change.getDocumentKey().getInt32("_id").getValue();
            System.out.println("change: " + change.getOperationType().getValue() + " " + number);
        }
    }
}
