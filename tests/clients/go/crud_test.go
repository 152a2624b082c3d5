package clients

import (
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

type d = bson.D

// kv is a short notation of documents: kv("a", 1, "b", 2).
func kv(pairs ...any) bson.D {
	out := bson.D{}
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, bson.E{Key: pairs[i].(string), Value: pairs[i+1]})
	}
	return out
}

func TestInsert(t *testing.T) {
	c := empty(t)
	one := must(c.InsertOne(ctx, kv("a", 1)))(t)
	if _, isID := one.InsertedID.(bson.ObjectID); !isID || !one.Acknowledged {
		t.Fatalf("%+v", one)
	}
	many := must(c.InsertMany(ctx, []any{kv("_id", "x"), kv("_id", 2), kv("n", 3)}))(t)
	same(t, many.InsertedIDs[:2], bson.A{"x", 2})
	same(t, must(c.CountDocuments(ctx, d{}))(t), int64(4))
}

func TestFindOptions(t *testing.T) {
	c := numbers(t, 20)
	find := func(filter any, o *options.FindOptionsBuilder) bson.A {
		t.Helper()
		cursor, err := c.Find(ctx, filter, o)
		return ids(all(t, cursor, err))
	}
	same(t, find(kv("a", 1), options.Find().SetSort(kv("_id", -1)).SetSkip(1).SetLimit(2)), bson.A{int32(13), int32(9)})
	same(t, find(kv("t", 7), options.Find()), bson.A{int32(6), int32(7)})
	same(t, find(kv("_id", kv("$in", bson.A{3, 99, 5})), options.Find().SetSort(kv("_id", 1))), bson.A{int32(3), int32(5)})
	name := must(c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: kv("a", 1, "_id", 1)}))(t)
	same(t, name, "a_1__id_1")
	same(t, find(d{}, options.Find().SetHint(name).SetMin(kv("a", 1, "_id", 9)).SetMax(kv("a", 2, "_id", 6))), bson.A{int32(9), int32(13), int32(17), int32(2)})
	same(t, find(kv("$expr", kv("$eq", bson.A{"$_id", "$$n"})), options.Find().SetLet(kv("n", 4)).SetComment("why")), bson.A{int32(4)})
	same(t, find(d{}, options.Find().SetHint(kv("$natural", -1)).SetLimit(2)), bson.A{int32(19), int32(18)})
	same(t, find(kv("a", 3), options.Find().SetAllowDiskUse(true).SetSort(kv("t", -1)).SetLimit(1)), bson.A{int32(19)})
}

func TestFindOne(t *testing.T) {
	c := numbers(t, 20)
	var found bson.D
	ok(t, c.FindOne(ctx, kv("a", 2), options.FindOne().SetSort(kv("_id", -1)).SetProjection(kv("t", 0))).Decode(&found))
	same(t, found, kv("_id", int32(18), "a", int32(2)))
	if err := c.FindOne(ctx, kv("a", 9)).Err(); !errors.Is(err, mongo.ErrNoDocuments) {
		t.Fatal(err)
	}
}

func TestProjections(t *testing.T) {
	c := empty(t)
	must(c.InsertOne(ctx, kv("_id", 1, "a", 1, "b", kv("c", 2, "d", 3), "e", bson.A{1, 2, 3}, "f", bson.A{kv("g", 1), kv("g", 2)})))(t)
	for _, x := range []struct{ filter, projection, want d }{
		{d{}, kv("a", 1, "_id", 0), kv("a", int32(1))},
		{d{}, kv("b.c", 1), kv("_id", int32(1), "b", kv("c", int32(2)))},
		{d{}, kv("b", 0, "e", 0, "f", 0), kv("_id", int32(1), "a", int32(1))},
		{d{}, kv("e", kv("$slice", -1), "a", 1), kv("_id", int32(1), "a", int32(1), "e", bson.A{int32(3)})},
		{d{}, kv("f", kv("$elemMatch", kv("g", 2))), kv("_id", int32(1), "f", bson.A{kv("g", int32(2))})},
		{kv("e", kv("$gt", 1)), kv("e.$", 1), kv("_id", int32(1), "e", bson.A{int32(2)})},
	} {
		var got d
		ok(t, c.FindOne(ctx, x.filter, options.FindOne().SetProjection(x.projection)).Decode(&got))
		same(t, got, x.want)
	}
}

func TestCounting(t *testing.T) {
	c := numbers(t, 20)
	same(t, must(c.CountDocuments(ctx, kv("a", 1)))(t), int64(5))
	same(t, must(c.CountDocuments(ctx, d{}, options.Count().SetSkip(15).SetLimit(10)))(t), int64(5))
	same(t, must(c.EstimatedDocumentCount(ctx))(t), int64(20))
	var values []int32
	ok(t, c.Distinct(ctx, "a", kv("_id", kv("$lt", 3))).Decode(&values))
	same(t, values, []int32{0, 1, 2})
}

func TestUpdate(t *testing.T) {
	c := numbers(t, 20)
	r := must(c.UpdateOne(ctx, kv("_id", 1), kv("$set", kv("a", int32(1)))))(t)
	same(t, bson.A{r.MatchedCount, r.ModifiedCount, r.UpsertedCount}, bson.A{int64(1), int64(0), int64(0)})
	r = must(c.UpdateMany(ctx, kv("a", 1), kv("$inc", kv("n", 5), "$unset", kv("t", ""))))(t)
	same(t, bson.A{r.MatchedCount, r.ModifiedCount}, bson.A{int64(5), int64(5)})
	r = must(c.ReplaceOne(ctx, kv("_id", 2), kv("whole", true)))(t)
	same(t, r.ModifiedCount, int64(1))
	r = must(c.UpdateOne(ctx, kv("k", "x"), kv("$setOnInsert", kv("_id", "made")), options.UpdateOne().SetUpsert(true)))(t)
	same(t, bson.A{r.MatchedCount, r.UpsertedCount, r.UpsertedID}, bson.A{int64(0), int64(1), "made"})
	r = must(c.UpdateByID(ctx, 404, kv("$set", kv("a", 1))))(t)
	same(t, r.MatchedCount, int64(0))
}

func TestArrayUpdates(t *testing.T) {
	c := empty(t)
	must(c.InsertOne(ctx, kv("_id", 1, "a", bson.A{3, 1, 2})))(t)
	for _, x := range []struct {
		update d
		want   []int32
	}{
		{kv("$push", kv("a", 4)), []int32{3, 1, 2, 4}},
		{kv("$push", kv("a", kv("$each", bson.A{9, 8}, "$position", 0, "$slice", 5))), []int32{9, 8, 3, 1, 2}},
		{kv("$push", kv("a", kv("$each", bson.A{}, "$sort", 1))), []int32{1, 2, 3, 8, 9}},
		{kv("$addToSet", kv("a", kv("$each", bson.A{9, 7}))), []int32{1, 2, 3, 8, 9, 7}},
		{kv("$pull", kv("a", kv("$gte", 8))), []int32{1, 2, 3, 7}},
		{kv("$pop", kv("a", -1)), []int32{2, 3, 7}},
		{kv("$mul", kv("a.0", 5)), []int32{10, 3, 7}},
	} {
		var got struct{ A []int32 }
		ok(t, c.FindOneAndUpdate(ctx, kv("_id", 1), x.update, options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&got))
		same(t, got.A, x.want)
	}
}

func TestFindOneAnd(t *testing.T) {
	c := empty(t)
	must(c.InsertMany(ctx, []any{kv("_id", 1, "n", 3), kv("_id", 2, "n", 1), kv("_id", 3, "n", 2)}))(t)
	var got d
	ok(t, c.FindOneAndUpdate(ctx, d{}, kv("$inc", kv("n", 10)), options.FindOneAndUpdate().SetSort(kv("n", 1))).Decode(&got))
	same(t, got, kv("_id", int32(2), "n", int32(1)))
	got = nil
	ok(t, c.FindOneAndReplace(ctx, kv("_id", 1), kv("r", 1), options.FindOneAndReplace().SetReturnDocument(options.After)).Decode(&got))
	same(t, got, kv("_id", int32(1), "r", int32(1)))
	got = nil
	ok(t, c.FindOneAndDelete(ctx, kv("_id", 3), options.FindOneAndDelete().SetProjection(kv("_id", 0))).Decode(&got))
	same(t, got, kv("n", int32(2)))
	if err := c.FindOneAndDelete(ctx, kv("_id", 3)).Err(); !errors.Is(err, mongo.ErrNoDocuments) {
		t.Fatal(err)
	}
}

func TestDelete(t *testing.T) {
	c := numbers(t, 20)
	same(t, must(c.DeleteOne(ctx, kv("a", 1)))(t).DeletedCount, int64(1))
	same(t, must(c.DeleteMany(ctx, kv("a", 1)))(t).DeletedCount, int64(4))
	same(t, must(c.DeleteMany(ctx, d{}))(t).DeletedCount, int64(15))
}

func TestAggregate(t *testing.T) {
	c := numbers(t, 20)
	cursor, err := c.Aggregate(ctx, mongo.Pipeline{
		kv("$match", kv("_id", kv("$lt", 8))), kv("$group", kv("_id", "$a", "n", kv("$sum", 1))), kv("$sort", kv("_id", 1)), kv("$limit", 2),
	}, options.Aggregate().SetBatchSize(1))
	same(t, all(t, cursor, err), []d{kv("_id", int32(0), "n", int32(2)), kv("_id", int32(1), "n", int32(2))})
}

type person struct {
	ID      bson.ObjectID `bson:"_id,omitempty"`
	Name    string
	Born    time.Time
	Tags    []string           `bson:",omitempty"`
	Scores  map[string]int64   `bson:"scores"`
	Nested  struct{ X *int32 } `bson:"nested"`
	Balance bson.Decimal128
}

func TestStructs(t *testing.T) {
	c := empty(t)
	x := int32(7)
	p := person{Name: "Ada", Born: time.Date(1815, 12, 10, 1, 2, 3, 4_000_000, time.UTC), Tags: []string{"math"}, Scores: map[string]int64{"a": 1 << 40}}
	p.Nested.X = &x
	p.Balance, _ = bson.ParseDecimal128("12.340")
	p.ID = must(c.InsertOne(ctx, p))(t).InsertedID.(bson.ObjectID)
	var back person
	ok(t, c.FindOne(ctx, kv("name", "Ada", "nested.x", kv("$gt", 5))).Decode(&back))
	same(t, back, p)
}

func TestBulkWrite(t *testing.T) {
	c := empty(t)
	r := must(c.BulkWrite(ctx, []mongo.WriteModel{
		mongo.NewInsertOneModel().SetDocument(kv("_id", 1, "n", 1)),
		mongo.NewInsertOneModel().SetDocument(kv("_id", 2, "n", 2)),
		mongo.NewUpdateOneModel().SetFilter(kv("_id", 1)).SetUpdate(kv("$inc", kv("n", 10))),
		mongo.NewUpdateManyModel().SetFilter(kv("n", kv("$gt", 1))).SetUpdate(kv("$set", kv("big", true))),
		mongo.NewReplaceOneModel().SetFilter(kv("_id", 3)).SetReplacement(kv("n", 3)).SetUpsert(true),
		mongo.NewDeleteOneModel().SetFilter(kv("_id", 2)),
	}))(t)
	same(t, bson.A{r.InsertedCount, r.MatchedCount, r.ModifiedCount, r.DeletedCount, r.UpsertedCount}, bson.A{int64(2), int64(3), int64(3), int64(1), int64(1)})
	same(t, r.UpsertedIDs[4], int32(3))
}

func TestBulkWriteErrors(t *testing.T) {
	for _, ordered := range []bool{true, false} {
		c := empty(t)
		var models []mongo.WriteModel
		for _, id := range []int{1, 1, 2, 2, 3} {
			models = append(models, mongo.NewInsertOneModel().SetDocument(kv("_id", id)))
		}
		r, err := c.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(ordered))
		var bulk mongo.BulkWriteException
		if !errors.As(err, &bulk) || !mongo.IsDuplicateKeyError(err) {
			t.Fatalf("%T %v", err, err)
		}
		at := []int{}
		for _, w := range bulk.WriteErrors {
			at = append(at, w.Index)
			same(t, w.Code, 11000)
		}
		if ordered {
			same(t, at, []int{1})
			same(t, r.InsertedCount, int64(1))
		} else {
			same(t, at, []int{1, 3})
			same(t, r.InsertedCount, int64(3))
		}
	}
}

func TestInsertManyPastOneCommand(t *testing.T) {
	c := empty(t)
	documents := make([]any, 100_001)
	for i := range documents {
		documents[i] = kv("_id", i)
	}
	same(t, len(must(c.InsertMany(ctx, documents))(t).InsertedIDs), 100_001)
	same(t, must(c.EstimatedDocumentCount(ctx))(t), int64(100_001))
}

func TestLargeDocuments(t *testing.T) {
	c := empty(t)
	large := make([]byte, 15_000_000)
	for i := range 4 {
		must(c.InsertOne(ctx, kv("_id", i, "b", large)))(t)
	}
	cursor, err := c.Find(ctx, d{}, options.Find().SetSort(kv("_id", 1)))
	found := all(t, cursor, err)
	same(t, ids(found), bson.A{int32(0), int32(1), int32(2), int32(3)})
	_, err = c.InsertOne(ctx, kv("_id", "over", "b", make([]byte, 16*1024*1024)))
	if err == nil {
		t.Fatal("more than 16 MiB was accepted")
	}
	same(t, must(c.CountDocuments(ctx, d{}))(t), int64(4))
}
