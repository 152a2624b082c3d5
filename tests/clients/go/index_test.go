package clients

import (
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func TestIndexesCreatedListedDropped(t *testing.T) {
	c := empty(t)
	view := c.Indexes()
	names := must(view.CreateMany(ctx, []mongo.IndexModel{
		{Keys: kv("a", 1)},
		{Keys: kv("b", -1, "c.d", 1), Options: options.Index().SetName("mine").SetUnique(true)},
		{Keys: kv("s", 1), Options: options.Index().SetSparse(true)},
		{Keys: kv("p", 1), Options: options.Index().SetPartialFilterExpression(kv("p", kv("$gt", 5)))},
		{Keys: kv("h", 1), Options: options.Index().SetHidden(true)},
	}))(t)
	same(t, names, []string{"a_1", "mine", "s_1", "p_1", "h_1"})
	listed := must(view.ListSpecifications(ctx))(t)
	got := []string{}
	for _, s := range listed {
		got = append(got, s.Name)
	}
	same(t, got, []string{"_id_", "a_1", "mine", "s_1", "p_1", "h_1"})
	same(t, *listed[2].Unique, true)
	same(t, *listed[3].Sparse, true)
	ok(t, view.DropOne(ctx, "mine"))
	ok(t, view.DropWithKey(ctx, kv("a", 1)))
	ok(t, view.DropAll(ctx))
	same(t, len(must(view.ListSpecifications(ctx))(t)), 1)
}

func TestIndexConflicts(t *testing.T) {
	c := empty(t)
	create := func(keys d, o *options.IndexOptionsBuilder) error {
		_, err := c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: keys, Options: o})
		return err
	}
	ok(t, create(kv("a", 1), options.Index()))
	ok(t, create(kv("a", 1), options.Index()))
	refused(t, create(kv("a", 1), options.Index().SetName("other")), 85)
	refused(t, create(kv("b", 1), options.Index().SetName("a_1")), 86)
	refused(t, create(kv("a", 1), options.Index().SetUnique(true)), 86)
	refused(t, create(kv("a", 0), options.Index()), 67)
	refused(t, c.Indexes().DropOne(ctx, "none"), 27)
	refused(t, c.Indexes().DropOne(ctx, "_id_"), 72)
}

func TestDuplicateKey(t *testing.T) {
	c := empty(t)
	must(c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: kv("email", 1), Options: options.Index().SetUnique(true)}))(t)
	must(c.InsertOne(ctx, kv("_id", 1, "email", "a@b.c")))(t)
	_, err := c.InsertOne(ctx, kv("_id", 2, "email", "a@b.c"))
	var write mongo.WriteException
	if !errors.As(err, &write) || !mongo.IsDuplicateKeyError(err) {
		t.Fatalf("%T %v", err, err)
	}
	first := write.WriteErrors[0]
	same(t, first.Code, 11000)
	if !strings.Contains(first.Message, `index: email_1 dup key: { email: "a@b.c" }`) {
		t.Fatal(first.Message)
	}
	same(t, first.Raw.Lookup("keyPattern", "email").AsInt64(), int64(1))
	same(t, first.Raw.Lookup("keyValue", "email").StringValue(), "a@b.c")
	err = c.FindOneAndUpdate(ctx, kv("_id", 5), kv("$set", kv("email", "a@b.c")), options.FindOneAndUpdate().SetUpsert(true)).Err()
	var cmd mongo.CommandError
	if !errors.As(err, &cmd) || cmd.Code != 11000 || cmd.Name != "DuplicateKey" {
		t.Fatalf("%T %v", err, err)
	}
	same(t, must(c.CountDocuments(ctx, d{}))(t), int64(1))
}

func TestUniqueOverDuplicates(t *testing.T) {
	c := empty(t)
	must(c.InsertMany(ctx, []any{kv("k", 1), kv("k", 1)}))(t)
	_, err := c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: kv("k", 1), Options: options.Index().SetUnique(true)})
	refused(t, err, 11000)
	same(t, len(must(c.Indexes().ListSpecifications(ctx))(t)), 1)
}

func TestIndexAndScanAgree(t *testing.T) {
	c := numbers(t, 2000)
	must(c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: kv("t", 1, "a", -1)}))(t)
	for _, filter := range []d{kv("t", 77), kv("t", kv("$gt", 100, "$lt", 110)), kv("t", kv("$in", bson.A{5, 500}), "a", kv("$gte", 1))} {
		byIndex, err := c.Find(ctx, filter, options.Find().SetHint(kv("t", 1, "a", -1)).SetSort(kv("_id", 1)))
		a := ids(all(t, byIndex, err))
		scan, err := c.Find(ctx, filter, options.Find().SetHint(kv("$natural", 1)).SetSort(kv("_id", 1)))
		same(t, a, ids(all(t, scan, err)))
	}
}

func TestExplain(t *testing.T) {
	c := numbers(t, 100)
	must(c.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: kv("a", 1)}))(t)
	plan := command(t, "go_suite", kv("explain", kv("find", c.Name(), "filter", kv("a", 2)), "verbosity", "executionStats"))
	same(t, number(section(plan, "executionStats", "totalKeysExamined")), int64(25))
	same(t, section(plan, "queryPlanner", "winningPlan", "inputStage", "indexName"), "a_1")
}
