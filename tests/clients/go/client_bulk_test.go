package clients

import (
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// twoDatabases returns two empty collections of one name in different databases.
func twoDatabases(t *testing.T) (*mongo.Collection, *mongo.Collection) {
	t.Helper()
	a := empty(t)
	b := shared.Database("go_suite_other").Collection(a.Name())
	ok(t, b.Drop(ctx))
	return a, b
}

func in(c *mongo.Collection, m mongo.ClientWriteModel) mongo.ClientBulkWrite {
	return mongo.ClientBulkWrite{Database: c.Database().Name(), Collection: c.Name(), Model: m}
}

func insertOf(c *mongo.Collection, d bson.D) mongo.ClientBulkWrite {
	return in(c, mongo.NewClientInsertOneModel().SetDocument(d))
}

func TestClientBulkWrite(t *testing.T) {
	a, b := twoDatabases(t)
	writes := []mongo.ClientBulkWrite{
		insertOf(a, bson.D{{Key: "_id", Value: 1}, {Key: "n", Value: 1}}),
		insertOf(b, id(1)),
		in(a, mongo.NewClientUpdateOneModel().SetFilter(id(1)).SetUpdate(inc(10))),
		in(a, mongo.NewClientUpdateManyModel().SetFilter(bson.D{}).SetUpdate(field("$set", field("n", 11)))),
		in(b, mongo.NewClientReplaceOneModel().SetFilter(id(3)).SetReplacement(field("n", 3)).SetUpsert(true)),
		in(a, mongo.NewClientDeleteOneModel().SetFilter(id(2))),
		in(b, mongo.NewClientDeleteManyModel().SetFilter(bson.D{})),
	}
	r := must(shared.BulkWrite(ctx, writes, options.ClientBulkWrite().SetVerboseResults(true)))(t)
	same(t, []int64{r.InsertedCount, r.UpsertedCount, r.MatchedCount, r.ModifiedCount, r.DeletedCount}, []int64{2, 1, 2, 1, 2})
	same(t, []any{r.InsertResults[0].InsertedID, r.InsertResults[1].InsertedID, r.UpdateResults[4].UpsertedID}, []any{1, 1, 3})
	same(t, []int64{r.UpdateResults[2].ModifiedCount, r.UpdateResults[3].ModifiedCount, r.DeleteResults[5].DeletedCount, r.DeleteResults[6].DeletedCount}, []int64{1, 0, 0, 2})
	same(t, value(t, ctx, a, id(1)), 11)
}

func TestClientBulkWriteErrors(t *testing.T) {
	for ordered, inserted := range map[bool]int64{true: 1, false: 4} {
		a, b := twoDatabases(t)
		writes := []mongo.ClientBulkWrite{insertOf(a, id(1)), insertOf(a, id(1)), insertOf(a, id(2)), insertOf(a, id(2)), insertOf(a, id(3)), insertOf(b, id(1))}
		_, err := shared.BulkWrite(ctx, writes, options.ClientBulkWrite().SetOrdered(ordered))
		var failed mongo.ClientBulkWriteException
		if !errors.As(err, &failed) {
			t.Fatalf("expected errors of single writes, got %v", err)
		}
		if failed.WriteErrors[1].Code != 11000 || len(failed.WriteErrors) != map[bool]int{true: 1, false: 2}[ordered] {
			t.Fatalf("%v: %v", ordered, failed.WriteErrors)
		}
		same(t, failed.PartialResult.InsertedCount, inserted)
	}
}

func TestClientBulkWriteInATransaction(t *testing.T) {
	a, b := twoDatabases(t)
	session, in := begin(t)
	must(shared.BulkWrite(in, []mongo.ClientBulkWrite{insertOf(a, id(1)), insertOf(b, id(1))}))(t)
	same(t, must(b.CountDocuments(ctx, bson.D{}))(t), int64(0))
	ok(t, session.CommitTransaction(ctx))
	same(t, must(b.CountDocuments(ctx, bson.D{}))(t), int64(1))
	session, in = begin(t)
	_, err := shared.BulkWrite(in, []mongo.ClientBulkWrite{insertOf(a, id(2)), insertOf(b, id(1))})
	if err == nil {
		t.Fatal("a duplicate was taken")
	}
	refused(t, session.CommitTransaction(ctx), 251)
	same(t, must(a.CountDocuments(ctx, bson.D{}))(t), int64(1))
}

func TestClientBulkWriteOfSeveralCommandsAndBatches(t *testing.T) {
	a, _ := twoDatabases(t)
	writes := make([]mongo.ClientBulkWrite, 100_001)
	for i := range writes {
		writes[i] = insertOf(a, id(i))
	}
	same(t, must(shared.BulkWrite(ctx, writes))(t).InsertedCount, int64(100_001))
	large := make([]mongo.ClientBulkWrite, 30)
	for i := range large {
		key := bson.D{{Key: "_id", Value: strings.Repeat("x", 1_000_000+i)}}
		large[i] = in(a, mongo.NewClientUpdateOneModel().SetFilter(key).SetUpdate(inc(1)).SetUpsert(true))
	}
	r := must(shared.BulkWrite(ctx, large, options.ClientBulkWrite().SetVerboseResults(true)))(t)
	for i := range large {
		if got, isText := r.UpdateResults[i].UpsertedID.(string); !isText || len(got) != 1_000_000+i {
			t.Fatalf("the id of upsert %d did not come back", i)
		}
	}
}
