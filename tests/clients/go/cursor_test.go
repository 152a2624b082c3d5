package clients

import (
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func TestBatchSizes(t *testing.T) {
	c := numbers(t, 1000)
	want := bson.A{}
	for i := range 1000 {
		want = append(want, int32(i))
	}
	for _, size := range []int32{1, 99, 500, 1000, 2000} {
		cursor, err := c.Find(ctx, d{}, options.Find().SetBatchSize(size).SetSort(kv("_id", 1)))
		same(t, ids(all(t, cursor, err)), want)
	}
	cursor, err := c.Find(ctx, d{}, options.Find().SetBatchSize(100).SetLimit(250).SetSkip(10).SetSort(kv("_id", 1)))
	same(t, ids(all(t, cursor, err)), want[10:260])
}

func TestNextAndRemaining(t *testing.T) {
	c := numbers(t, 10)
	cursor := must(c.Find(ctx, d{}, options.Find().SetBatchSize(4)))(t)
	defer cursor.Close(ctx)
	same(t, cursor.RemainingBatchLength(), 4)
	n := 0
	for cursor.Next(ctx) {
		var x struct {
			ID int32 `bson:"_id"`
		}
		ok(t, cursor.Decode(&x))
		n++
	}
	ok(t, cursor.Err())
	same(t, n, 10)
	same(t, cursor.ID(), int64(0))
}

func TestCloseKillsTheCursor(t *testing.T) {
	c := numbers(t, 100)
	cursor := must(c.Find(ctx, d{}, options.Find().SetBatchSize(2)))(t)
	id := cursor.ID()
	if id == 0 {
		t.Fatal("no cursor stayed open")
	}
	ok(t, cursor.Close(ctx))
	err := database().RunCommand(ctx, kv("getMore", id, "collection", c.Name())).Err()
	refused(t, err, 43)
}

func TestLostCursor(t *testing.T) {
	c := numbers(t, 100)
	cursor := must(c.Find(ctx, d{}, options.Find().SetBatchSize(2)))(t)
	ok(t, database().RunCommand(ctx, kv("killCursors", c.Name(), "cursors", bson.A{cursor.ID()})).Err())
	for cursor.Next(ctx) {
	}
	var cmd mongo.CommandError
	if err := cursor.Err(); !errors.As(err, &cmd) || cmd.Code != 43 || cmd.Name != "CursorNotFound" {
		t.Fatalf("%T %v", err, err)
	}
}

func TestSortWithoutIndexOverBatches(t *testing.T) {
	c := numbers(t, 1000)
	cursor, err := c.Find(ctx, d{}, options.Find().SetSort(kv("a", -1, "_id", 1)).SetBatchSize(33))
	found := all(t, cursor, err)
	same(t, len(found), 1000)
	same(t, ids(found)[:3], bson.A{int32(3), int32(7), int32(11)})
}
