package clients

import (
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

func command(t *testing.T, db string, cmd bson.D) bson.M {
	t.Helper()
	var reply bson.M
	ok(t, shared.Database(db).RunCommand(ctx, cmd).Decode(&reply))
	return reply
}

func TestHello(t *testing.T) {
	hello := command(t, "admin", bson.D{{Key: "hello", Value: 1}})
	same(t, hello["isWritablePrimary"], true)
	same(t, hello["maxBsonObjectSize"], int32(16*1024*1024))
	same(t, hello["maxMessageSizeBytes"], int32(48_000_000))
	same(t, hello["maxWriteBatchSize"], int32(100_000))
	same(t, hello["ok"], 1.0)
}

func TestPing(t *testing.T) { ok(t, shared.Ping(ctx, nil)) }

// The driver sends lsid only if hello announced sessions.
func TestSessionsAreSentOnlyIfAnnounced(t *testing.T) {
	var mu sync.Mutex
	var find bson.Raw
	monitor := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "find" {
			mu.Lock()
			find = e.Command
			mu.Unlock()
		}
	}}
	client := must(mongo.Connect(options.Client().ApplyURI(os.Getenv("SHEAF_URI")).SetMonitor(monitor)))(t)
	defer client.Disconnect(ctx)
	must(client.Database("go_suite").Collection("x").Find(ctx, bson.D{}))(t)
	_, announced := command(t, "admin", bson.D{{Key: "hello", Value: 1}})["logicalSessionTimeoutMinutes"]
	_, err := find.LookupErr("lsid")
	same(t, err == nil, announced)
}

func TestExplicitSession(t *testing.T) {
	c := empty(t)
	session := must(shared.StartSession())(t)
	defer session.EndSession(ctx)
	ok(t, mongo.WithSession(ctx, session, func(ctx context.Context) error {
		_, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}})
		return err
	}))
	same(t, must(c.CountDocuments(ctx, bson.D{}))(t), int64(1))
}

func number(v any) int64 {
	switch n := v.(type) {
	case int32:
		return int64(n)
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return -1
}

func section(m any, path ...string) any {
	for _, key := range path {
		switch v := m.(type) {
		case bson.M:
			m = v[key]
		case bson.D:
			m = nil
			for _, e := range v {
				if e.Key == key {
					m = e.Value
				}
			}
		default:
			return nil
		}
	}
	return m
}

func TestCompression(t *testing.T) {
	for _, name := range []string{"snappy", "zlib", "zstd"} {
		t.Run(name, func(t *testing.T) {
			client := must(mongo.Connect(options.Client().ApplyURI(os.Getenv("SHEAF_URI")).SetCompressors([]string{name})))(t)
			defer client.Disconnect(ctx)
			unpacked := func() int64 {
				status := command(t, "admin", bson.D{{Key: "serverStatus", Value: 1}})
				return number(section(status, "network", "compression", name, "decompressor", "bytesOut"))
			}
			c := client.Database("go_suite").Collection("compressed_" + name)
			ok(t, c.Drop(ctx))
			before := unpacked()
			text := strings.Repeat("compressible ", 20_000)
			must(c.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}, {Key: "text", Value: text}}))(t)
			var found struct{ Text string }
			ok(t, c.FindOne(ctx, bson.D{}).Decode(&found))
			same(t, found.Text == text, true)
			if grown := unpacked() - before; grown < int64(len(text)) {
				t.Fatalf("%s unpacked only %d bytes", name, grown)
			}
		})
	}
}

func TestUnixSocket(t *testing.T) {
	client := must(mongo.Connect(options.Client().ApplyURI("mongodb://" + url.QueryEscape(os.Getenv("SHEAF_SOCKET")))))(t)
	defer client.Disconnect(ctx)
	c := client.Database("go_suite").Collection("socket")
	ok(t, c.Drop(ctx))
	must(c.InsertOne(ctx, bson.D{{Key: "_id", Value: 1}}))(t)
	same(t, must(c.CountDocuments(ctx, bson.D{}))(t), int64(1))
}

func TestEightGoroutinesAndEightClients(t *testing.T) {
	c := empty(t)
	must(c.InsertOne(ctx, bson.D{{Key: "_id", Value: "counter"}, {Key: "n", Value: 0}}))(t)
	var wg sync.WaitGroup
	errs := make(chan error, 16)
	work := func(who int, c *mongo.Collection) {
		defer wg.Done()
		for i := range 50 {
			if _, err := c.InsertOne(ctx, bson.D{{Key: "_id", Value: fmt.Sprintf("%d-%d", who, i)}}); err != nil {
				errs <- err
				return
			}
			if _, err := c.UpdateOne(ctx, bson.D{{Key: "_id", Value: "counter"}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}); err != nil {
				errs <- err
				return
			}
		}
	}
	for who := range 8 {
		client := must(mongo.Connect(options.Client().ApplyURI(os.Getenv("SHEAF_URI"))))(t)
		defer client.Disconnect(ctx)
		wg.Add(2)
		go work(who, c)
		go work(who+8, client.Database("go_suite").Collection(c.Name()))
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
	same(t, must(c.CountDocuments(ctx, bson.D{}))(t), int64(801))
	var counter struct{ N int }
	ok(t, c.FindOne(ctx, bson.D{{Key: "_id", Value: "counter"}}).Decode(&counter))
	same(t, counter.N, 800)
}

func TestConcerns(t *testing.T) {
	c := empty(t)
	journaled := true
	for i, w := range []*writeconcern.WriteConcern{{W: 1, Journal: &journaled}, writeconcern.Majority(), writeconcern.W1()} {
		must(c.Clone(options.Collection().SetWriteConcern(w)).InsertOne(ctx, bson.D{{Key: "_id", Value: i}}))(t)
	}
	for _, r := range []*readconcern.ReadConcern{readconcern.Local(), readconcern.Majority(), readconcern.Available()} {
		same(t, must(c.Clone(options.Collection().SetReadConcern(r)).CountDocuments(ctx, bson.D{}))(t), int64(3))
	}
	_, err := c.Clone(options.Collection().SetWriteConcern(&writeconcern.WriteConcern{W: 3})).InsertOne(ctx, bson.D{})
	refused(t, err, 2)
}

func TestCancelledContextLeavesTheClientUsable(t *testing.T) {
	c := numbers(t, 1000)
	short, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := c.Find(short, bson.D{}); err == nil {
		t.Fatal("a cancelled context was not noticed")
	}
	same(t, must(c.CountDocuments(ctx, bson.D{}))(t), int64(1000))
}
