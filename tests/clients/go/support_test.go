// Package clients drives the real server through the Go driver.
//
// The server is the one at $SHEAF_URI; each test works in an empty collection
// named after it.
package clients

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

var (
	shared *mongo.Client
	ctx    = context.Background()
)

func TestMain(m *testing.M) {
	client, err := mongo.Connect(options.Client().ApplyURI(os.Getenv("SHEAF_URI")).SetServerSelectionTimeout(5 * time.Second))
	if err != nil {
		panic(err)
	}
	shared = client
	if err := database().Drop(ctx); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := client.Disconnect(ctx); err != nil {
		panic(err)
	}
	os.Exit(code)
}

func database() *mongo.Database { return shared.Database("go_suite") }

// empty returns an empty collection for this test.
func empty(t *testing.T) *mongo.Collection {
	t.Helper()
	c := database().Collection(strings.NewReplacer("/", "_", " ", "_", "$", "_").Replace(t.Name()))
	ok(t, c.Drop(ctx))
	return c
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// must returns a result that must not be an error.
func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		ok(t, err)
		return v
	}
}

// same compares as canonical Extended JSON, including types.
func same(t *testing.T, got, want any) {
	t.Helper()
	g, w := canonical(t, got), canonical(t, want)
	if g != w {
		t.Fatalf("got  %s\nwant %s", g, w)
	}
}

func canonical(t *testing.T, v any) string {
	t.Helper()
	text, err := bson.MarshalExtJSON(bson.D{{Key: "v", Value: v}}, true, false)
	ok(t, err)
	return string(text)
}

// all drains a cursor.
func all(t *testing.T, cursor *mongo.Cursor, err error) []bson.D {
	t.Helper()
	ok(t, err)
	documents := []bson.D{}
	ok(t, cursor.All(ctx, &documents))
	return documents
}

func ids(documents []bson.D) bson.A {
	out := bson.A{}
	for _, d := range documents {
		for _, e := range d {
			if e.Key == "_id" {
				out = append(out, e.Value)
			}
		}
	}
	return out
}

// refused checks that err is the server's error with this code.
func refused(t *testing.T, err error, code int) mongo.ServerError {
	t.Helper()
	var server mongo.ServerError
	if !errors.As(err, &server) {
		t.Fatalf("expected the server's error %d, got %v", code, err)
	}
	if !server.HasErrorCode(code) {
		t.Fatalf("expected code %d, got %v", code, err)
	}
	return server
}

func numbers(t *testing.T, n int) *mongo.Collection {
	t.Helper()
	c := empty(t)
	documents := make([]any, n)
	for i := range documents {
		documents[i] = bson.D{{Key: "_id", Value: int32(i)}, {Key: "a", Value: int32(i % 4)}, {Key: "t", Value: bson.A{int32(i), int32(i + 1)}}}
	}
	must(c.InsertMany(ctx, documents))(t)
	return c
}
