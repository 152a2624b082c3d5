package clients

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

func TestUnknownNamesAreRefusedByName(t *testing.T) {
	c := empty(t)
	must(c.InsertOne(ctx, kv("a", 1)))(t)
	_, modifier := c.UpdateOne(ctx, d{}, kv("$frob", kv("a", 1)))
	_, stage := c.Aggregate(ctx, mongo.Pipeline{kv("$frob", 1)})
	for _, x := range []struct {
		err  error
		code int
		says string
	}{
		{database().RunCommand(ctx, kv("frobnicate", 1)).Err(), 59, "no such command: 'frobnicate'"},
		{c.FindOne(ctx, kv("a", kv("$frob", 1))).Err(), 2, "unknown operator: $frob"},
		{c.FindOne(ctx, kv("$frob", 1)).Err(), 2, "unknown top level operator: $frob"},
		{modifier, 9, "nknown modifier: $frob"},
		{stage, 40324, "Unrecognized pipeline stage name: '$frob'"},
		{database().RunCommand(ctx, kv("find", c.Name(), "frob", 1)).Err(), 40415, "frob"},
	} {
		refused(t, x.err, x.code)
		if !strings.Contains(x.err.Error(), x.says) {
			t.Errorf("%q does not say %q", x.err, x.says)
		}
	}
	var cmd mongo.CommandError
	if err := database().RunCommand(ctx, kv("frobnicate", 1)).Err(); !errors.As(err, &cmd) || cmd.Name != "CommandNotFound" {
		t.Fatalf("%T %v", err, err)
	}
}

func TestInvalidUpdates(t *testing.T) {
	c := empty(t)
	before := kv("_id", int32(1), "n", int32(1), "s", "x")
	must(c.InsertOne(ctx, before))(t)
	for _, x := range []struct {
		update d
		code   int
	}{
		{kv("$set", kv("n", 1), "$inc", kv("n", 1)), 40},
		{kv("$inc", kv("s", 1)), 14},
		{kv("$push", kv("n", 1)), 2},
		{kv("$set", kv("_id", 2)), 66},
		{kv("$set", kv("n.x", 2)), 28},
	} {
		_, err := c.UpdateOne(ctx, kv("_id", 1), x.update)
		refused(t, err, x.code)
	}
	var after d
	ok(t, c.FindOne(ctx, d{}).Decode(&after))
	same(t, after, before)
}

func TestDeadlineEndsASlowFind(t *testing.T) {
	c := empty(t)
	documents := make([]any, 20_000)
	for i := range documents {
		documents[i] = kv("_id", i, "t", strings.Repeat("a", 40))
	}
	must(c.InsertMany(ctx, documents))(t)
	alternatives := bson.A{}
	// All patterns differ, since equal ones would be evaluated once.
	for i := range 60 {
		alternatives = append(alternatives, kv("t", bson.Regex{Pattern: fmt.Sprintf("[xyz]+%d$", i)}))
	}
	err := database().RunCommand(ctx, kv("find", c.Name(), "filter", kv("$or", alternatives), "maxTimeMS", 1)).Err()
	refused(t, err, 50)
	short, cancel := context.WithTimeout(ctx, 2*time.Millisecond)
	defer cancel()
	_, err = c.Find(short, kv("$or", alternatives))
	if !mongo.IsTimeout(err) {
		t.Fatalf("%T %v", err, err)
	}
	ok(t, shared.Ping(ctx, nil))
}

func TestCollections(t *testing.T) {
	db := shared.Database("go_admin")
	ok(t, db.Drop(ctx))
	ok(t, db.CreateCollection(ctx, "made"))
	must(db.Collection("filled").InsertOne(ctx, kv("_id", 1)))(t)
	names := must(db.ListCollectionNames(ctx, d{}))(t)
	same(t, len(names), 2)
	err := shared.Database("admin").RunCommand(ctx, kv("renameCollection", "go_admin.filled", "to", "go_admin.made")).Err()
	refused(t, err, 48)
	ok(t, shared.Database("admin").RunCommand(ctx, kv("renameCollection", "go_admin.filled", "to", "go_admin.made", "dropTarget", true)).Err())
	same(t, must(db.ListCollectionNames(ctx, d{}))(t), []string{"made"})
	same(t, must(shared.ListDatabaseNames(ctx, kv("name", "go_admin")))(t), []string{"go_admin"})
	ok(t, db.Drop(ctx))
	same(t, must(shared.ListDatabaseNames(ctx, kv("name", "go_admin")))(t), []string{})
}

func TestTypesRoundTrip(t *testing.T) {
	c := empty(t)
	dec, _ := bson.ParseDecimal128("0.1000")
	oid, _ := bson.ObjectIDFromHex("0123456789abcdef01234567")
	doc := kv("_id", int32(1), "double", 1.5, "int", int32(-7), "long", int64(1)<<60, "decimal", dec, "string", "grüße 🐿", "nul", "a\x00b",
		"object", kv("a", kv("b", d{})), "array", bson.A{int32(1), bson.A{"x"}, d{}, nil}, "bin", bson.Binary{Data: []byte{1, 2}},
		"user", bson.Binary{Subtype: 0x80, Data: []byte{9}}, "oid", oid, "yes", true, "date", bson.DateTime(-1), "nil", nil,
		"regex", bson.Regex{Pattern: "a.*b", Options: "im"}, "code", bson.JavaScript("f()"), "scope", bson.CodeWithScope{Code: "f(x)", Scope: kv("x", int32(1))},
		"symbol", bson.Symbol("sym"), "undefined", bson.Undefined{}, "ts", bson.Timestamp{T: 4000000000, I: 7}, "min", bson.MinKey{}, "max", bson.MaxKey{},
		"pointer", bson.DBPointer{DB: "db.c", Pointer: oid})
	must(c.InsertOne(ctx, doc))(t)
	var back d
	ok(t, c.FindOne(ctx, d{}).Decode(&back))
	same(t, back, doc)
}
